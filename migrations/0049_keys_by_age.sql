-- no-transaction
-- The keys of a tenant by age: where the tenant bounds their age, each replica counts every minute those that end soon.
create index concurrently api_keys_age on api_keys (tenant, created_at) where revoked_at is null;
