-- The indexes of the audit log that those of its partitions replace. That row numbers are unique follows from
-- `audit_heads`, whose row each writer of a chain moves from the number it knows. A migration of its own: with the locks
-- of the previous one, it and a writer would wait for each other.
alter table audit_log drop constraint audit_log_pkey;
drop index audit_log_at, audit_log_tenant, audit_log_agent, audit_log_slug;
