-- The revision of the tenant that created a hook, for conditional deletion; 0 where it was created before this migration.
alter table hooks add column revision bigint not null default 0;
