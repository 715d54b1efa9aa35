-- Which replica watches the content of a connection, and what streams of replicas are subscribed to of it.

create table leases (
    connection uuid primary key references connections (uid) on delete cascade,
    -- The replica; null once it has given the lease back.
    holder uuid,
    -- Raised with each new holder: what an earlier one writes is refused.
    fence bigint not null check (fence > 0),
    expires_at timestamptz not null,
    -- Raised when the subjects below change.
    interest bigint not null default 0,
    -- With this index, a new fence is a change of a key. It waits for writes that compare the fence (`for key share`),
    -- and extending the lease does not.
    unique (connection, fence)
);

-- The replicas that have recorded subjects; those of one that is gone expire with its row.
create table watchers (
    replica uuid primary key,
    expires_at timestamptz not null
);

-- The URIs that streams of a replica are subscribed to and whose content comes from a connection.
create table watching (
    replica uuid not null references watchers (replica) on delete cascade,
    tenant uuid not null,
    agent uuid not null,
    uri text collate "C" not null check (octet_length(uri) between 1 and 2048),
    connection uuid not null references connections (uid) on delete cascade,
    primary key (tenant, agent, uri, replica),
    foreign key (tenant, agent) references agents (tenant, uid) on delete cascade
);

create index watching_connection on watching (connection);
create index watching_replica on watching (replica);
