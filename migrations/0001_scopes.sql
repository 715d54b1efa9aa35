-- Everything that can change is a scope with a gapless revision.

-- One narrow row a scope, updated by every write: the low fillfactor keeps those updates on their page.
create table heads (
    scope uuid primary key,
    revision bigint not null check (revision >= 0),
    -- Changes at or below the floor are pruned.
    floor bigint not null check (floor between 0 and revision)
) with (fillfactor = 50);

-- No foreign key to what a change tells about: it outlives its subject.
create table changes (
    scope uuid not null,
    revision bigint not null check (revision > 0),
    ordinal integer not null check (ordinal >= 0),
    kind text not null,
    subject text collate "C" not null,
    xid xid8 not null default pg_current_xact_id(),
    primary key (scope, revision, ordinal)
);

-- The sweep: what was written by transactions not yet finished at the last one.
create index changes_xid on changes (xid);

-- What all replicas share and no caller sees. The nil UUID is the gateway's own scope.
create table gateway (
    singleton boolean primary key default true check (singleton),
    cursor_secret bytea not null check (octet_length(cursor_secret) = 32)
);

insert into heads (scope, revision, floor) values ('00000000-0000-0000-0000-000000000000', 0, 0);
