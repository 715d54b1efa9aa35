-- no-transaction
-- The keys that expire soon, which each replica counts every minute; without the index that is a scan of all keys.
create index concurrently api_keys_expiring on api_keys (expires_at)
where expires_at is not null and revoked_at is null;
