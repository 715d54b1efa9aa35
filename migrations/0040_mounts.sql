-- Mounts: trees of connections whose files appear as resources of an agent.

-- Identifies what a mount lists: another one for each place, each URI and each selection of files.
create sequence mount_trees;

create table mounts (
    tenant uuid not null,
    agent uuid not null,
    name text collate "C" not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    -- What the URIs of its files begin with.
    uri text collate "C" not null check (octet_length(uri) between 1 and 2048),
    connection uuid not null references connections (uid),
    -- The directory and the globs, a JSON object, as it was sent.
    place text not null check (octet_length(place) between 1 and 262144),
    -- How old content may be, a JSON object.
    ages text not null,
    annotations text,
    labels text[] not null default '{}',
    tree bigint not null default nextval('mount_trees'),
    -- The revision of the agent's scope that last changed this mount.
    revision bigint not null check (revision > 0),
    -- The revision that last changed its files; compared and set by each write of a scan.
    scanned bigint not null default 0,
    state text not null default 'scanning',
    entries bigint not null default 0,
    checked_at timestamptz,
    reason text,
    primary key (tenant, agent, name),
    -- Two mounts of a manifest may exchange theirs.
    unique (tenant, agent, uri) deferrable initially deferred,
    foreign key (tenant, agent) references agents (tenant, uid)
);

-- Whether a mount refers to a connection, and which mounts a watcher of it scans.
create index mounts_connection on mounts (connection);

create table mount_entries (
    tenant uuid not null,
    agent uuid not null,
    tree bigint not null,
    -- Relative to the tree, not percent-encoded.
    path text collate "C" not null check (octet_length(path) between 1 and 2048),
    size bigint,
    modified timestamptz,
    -- A digest of what proves that the file is unchanged.
    validator bytea not null,
    -- The revision of the agent's scope that last changed this entry.
    revision bigint not null check (revision > 0),
    primary key (tenant, agent, tree, path),
    foreign key (tenant, agent) references agents (tenant, uid)
);

-- What changed since a revision.
create index mount_entries_revision on mount_entries (tenant, agent, revision);

-- Trees of mounts that are gone or list something else, whose entries are purged.
create table gone_trees (
    tenant uuid not null,
    agent uuid not null,
    tree bigint not null,
    primary key (tenant, agent, tree),
    foreign key (tenant, agent) references agents (tenant, uid) on delete cascade
);
