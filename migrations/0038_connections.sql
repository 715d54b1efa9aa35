-- Connections: where content from outside is, with which credentials it is fetched, and which tenants may use it.

create table connections (
    uid uuid primary key,
    slug text collate "C" not null unique check (slug ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    kind text not null,
    -- The tenants that may use it; null for all.
    tenants uuid[],
    -- A JSON object.
    settings text not null,
    limits jsonb not null,
    enabled boolean not null,
    -- The revision of the scope of connections that last changed this row or its secrets.
    revision bigint not null check (revision > 0),
    created_at timestamptz not null
);

-- A row a secret, encrypted under a key that no database holds.
create table connection_secrets (
    connection uuid not null references connections (uid) on delete cascade,
    name text collate "C" not null,
    -- Identifies the key, and tells nothing of it.
    key_id text collate "C" not null,
    -- The nonce, the ciphertext and the tag.
    sealed bytea not null,
    updated_at timestamptz not null,
    primary key (connection, name)
);

-- Which keys are in use.
create index connection_secrets_key on connection_secrets (key_id);

-- The scope of all connections.
insert into heads (scope, revision, floor) values ('00000000-0000-0000-0000-000000000001', 0, 0);
