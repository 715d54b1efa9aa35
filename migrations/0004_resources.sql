-- Resources: definitions as rows, contents as immutable rows addressed by what they hold.

-- By agent, not by tenant: two agents that register the same bytes must not wait for each other's commit.
create table contents (
    tenant uuid not null,
    agent uuid not null,
    hash bytea not null check (octet_length(hash) = 32),
    bytes bytea not null,
    -- Set when something that named the bytes stopped doing so, cleared when they are named again. Replicas may
    -- still read by an older definition, so the purge waits a while.
    orphaned_at timestamptz,
    primary key (tenant, agent, hash),
    foreign key (tenant, agent) references agents (tenant, uid)
);

create index contents_orphaned on contents (orphaned_at) where orphaned_at is not null;

create table resources (
    tenant uuid not null,
    agent uuid not null,
    uri text collate "C" not null check (octet_length(uri) between 1 and 2048),
    name text not null check (octet_length(name) between 1 and 512),
    title text check (octet_length(title) between 1 and 512),
    description text check (octet_length(description) <= 16384),
    mime_type text check (octet_length(mime_type) between 1 and 255),
    -- JSON as text: these come back byte for byte as they were sent.
    annotations text check (octet_length(annotations) <= 65536),
    icons text check (octet_length(icons) <= 65536),
    meta text check (octet_length(meta) <= 65536),
    source text not null check (source in ('inline')),
    -- The revision of the agent's scope that last changed this resource.
    revision bigint not null check (revision > 0),
    last_modified timestamptz not null,
    primary key (tenant, agent, uri),
    foreign key (tenant, agent) references agents (tenant, uid)
);

create table resource_contents (
    tenant uuid not null,
    agent uuid not null,
    uri text collate "C" not null,
    ordinal integer not null check (ordinal >= 0),
    part_uri text check (octet_length(part_uri) between 1 and 2048),
    mime_type text check (octet_length(mime_type) between 1 and 255),
    kind text not null check (kind in ('text', 'blob')),
    hash bytea not null,
    size bigint not null check (size >= 0),
    primary key (tenant, agent, uri, ordinal),
    foreign key (tenant, agent, uri) references resources (tenant, agent, uri) on delete cascade,
    foreign key (tenant, agent, hash) references contents (tenant, agent, hash)
);

-- Whether anything still names some content.
create index resource_contents_hash on resource_contents (tenant, agent, hash);
