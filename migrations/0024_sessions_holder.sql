-- no-transaction
create index concurrently sessions_holder
on sessions (agent, (coalesce(holder, principal, '00000000-0000-0000-0000-000000000000'::uuid)))
where ended_at is null;
