-- Agent keys and owner keys. Only the SHA-256 of a key is known here.

create table api_keys (
    uid uuid primary key,
    tenant uuid not null references tenants (uid),
    -- Null for an owner key, which reaches every agent of its tenant.
    agent uuid,
    hash bytea not null unique check (octet_length(hash) = 32),
    display text not null check (octet_length(display) = 12),
    name text not null check (octet_length(name) between 1 and 512),
    scopes text[] not null check (
        scopes <@ array['mcp', 'registry', 'audit'] and cardinality(scopes) between 1 and 3
    ),
    -- Shared by a key and those that replaced it by rotation.
    principal uuid not null,
    -- The revision of the tenant's scope that last changed this row.
    revision bigint not null check (revision > 0),
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    foreign key (tenant, agent) references agents (tenant, uid)
);

create index api_keys_owner on api_keys (tenant, agent, uid);
