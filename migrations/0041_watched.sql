-- What was found last of content that is elsewhere and that somebody subscribed to.
create table watched (
    tenant uuid not null,
    agent uuid not null,
    uri text collate "C" not null check (octet_length(uri) between 1 and 2048),
    -- The SHA-256 of the contents.
    digest bytea not null check (octet_length(digest) = 32),
    -- Raised by each write, so that a replica that read an older row writes nothing.
    fence bigint not null check (fence > 0),
    found_at timestamptz not null,
    primary key (tenant, agent, uri),
    foreign key (tenant, agent) references agents (tenant, uid) on delete cascade
);

create index watched_found_at on watched (found_at);
