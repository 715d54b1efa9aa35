-- Sessions of the legacy revisions: what a client negotiated, and what it wants to be told of. Each is a scope.

create table sessions (
    -- The first half of the hash.
    uid uuid primary key,
    tenant uuid not null,
    agent uuid not null,
    -- Null for nobody, at a public agent.
    principal uuid,
    -- Of the id that only the client knows.
    hash bytea not null unique check (octet_length(hash) = 32),
    -- What was negotiated.
    version text not null check (octet_length(version) between 1 and 64),
    client_name text not null check (octet_length(client_name) <= 512),
    client_version text not null check (octet_length(client_version) <= 512),
    -- JSON as text, as it was sent.
    capabilities text not null check (octet_length(capabilities) <= 65536),
    level text check (
        level in ('debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency')
    ),
    -- How many streams it has had; the newest is the one that delivers.
    epoch bigint not null default 0 check (epoch >= 0),
    -- The revision of the agent's scope when the session was opened.
    since_revision bigint not null check (since_revision >= 0),
    created_at timestamptz not null,
    -- Noted now and then, and no change: nobody answers by it without looking again.
    used_at timestamptz not null,
    ended_at timestamptz,
    foreign key (tenant, agent) references agents (tenant, uid)
);

-- What is idle.
create index sessions_used on sessions (used_at) where ended_at is null;
-- How many one principal has open at one agent. Nobody is somebody here: a null would not be looked up in an index.
create index sessions_principal
on sessions (agent, (coalesce(principal, '00000000-0000-0000-0000-000000000000'::uuid)))
where ended_at is null;
-- What the purge has still to take away: what has ended, and what belongs to an agent that is gone.
create index sessions_ended on sessions (ended_at) where ended_at is not null;
create index sessions_agent on sessions (tenant, agent);

create table subscriptions (
    session uuid not null references sessions (uid) on delete cascade,
    uri text collate "C" not null check (octet_length(uri) between 1 and 2048),
    -- The revision of the agent's scope when it was taken up: what changed the resource later is told.
    since_revision bigint not null check (since_revision >= 0),
    primary key (session, uri)
);
