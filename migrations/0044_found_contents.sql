-- What was found last of watched content, which all replicas answer until it is too old.
create table found_contents (
    tenant uuid not null,
    agent uuid not null,
    uri text collate "C" not null check (octet_length(uri) between 1 and 2048),
    connection uuid not null references connections (uid) on delete cascade,
    -- The revision of the connection that it was fetched from.
    connected bigint not null,
    -- The revision of the agent that made it known: it is the content of the URI as long as this is the newest one of it.
    revision bigint not null,
    fetched_at timestamptz not null,
    expires_at timestamptz not null,
    validator bytea,
    size bigint not null,
    -- An element for each content: one for a file, several for a directory.
    names text[] not null,
    mime_types text[] not null,
    modified timestamptz[] not null,
    bodies bytea[] not null,
    primary key (tenant, agent, uri),
    foreign key (tenant, agent) references agents (tenant, uid) on delete cascade
);

create index found_contents_connection on found_contents (connection);
create index found_contents_expires on found_contents (expires_at);
