-- Tenants and their agents. Identity is the uid; a slug is only what people type.

create table tenants (
    uid uuid primary key,
    slug text collate "C" not null check (slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    name text not null check (octet_length(name) between 1 and 512),
    -- The revision of the tenant's scope that last changed this row.
    revision bigint not null check (revision > 0),
    created_at timestamptz not null,
    deleted_at timestamptz
);

create unique index tenants_slug on tenants (slug) where deleted_at is null;
-- What the purge has still to take away.
create index tenants_deleted on tenants (deleted_at) where deleted_at is not null;

create table agents (
    uid uuid primary key,
    tenant uuid not null references tenants (uid),
    slug text collate "C" not null check (
        slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'
        and slug not in ('admin', 'healthz', 'readyz', 'metrics', 'well-known', 'assets')
    ),
    name text not null check (octet_length(name) between 1 and 512),
    title text check (octet_length(title) between 1 and 512),
    instructions text check (octet_length(instructions) <= 65536),
    access text not null check (access in ('key', 'public')),
    enabled boolean not null,
    resource_count integer not null default 0 check (resource_count >= 0),
    created_at timestamptz not null,
    deleted_at timestamptz,
    -- What belongs to an agent names its tenant too, and the database holds both together.
    unique (tenant, uid)
);

create unique index agents_slug on agents (slug) where deleted_at is null;
create index agents_tenant_slug on agents (tenant, slug) where deleted_at is null;
create index agents_deleted on agents (deleted_at) where deleted_at is not null;

-- A slug once used stays with its tenant; a new life starts above the old one's last revision.
create table retired_agents (
    slug text collate "C" primary key,
    tenant text collate "C" not null,
    last_revision bigint not null check (last_revision > 0)
);

create table retired_tenants (
    slug text collate "C" primary key,
    last_revision bigint not null check (last_revision > 0)
);
