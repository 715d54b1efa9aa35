-- Definitions whose content is elsewhere: the connection, and the place as JSON, as it was sent.

alter table resources
    add column place text check (octet_length(place) between 1 and 131072),
    add column connection uuid references connections (uid),
    drop constraint resources_source_check,
    add constraint resources_source_check check (source in ('inline', 'connection')),
    -- A gateway of an earlier release that replaces one leaves its place, and writes the source `inline`.
    add constraint resources_sourced
        check (source = 'inline' or (place is not null and connection is not null));

-- Its body is a placeholder, which such a gateway renders, or replaces.
alter table templates
    add column place text check (octet_length(place) between 1 and 131072),
    add column connection uuid references connections (uid),
    add constraint templates_sourced check ((place is null) = (connection is null));

-- Whether a definition refers to a connection.
create index resources_connection on resources (connection) where connection is not null;
create index templates_connection on templates (connection) where connection is not null;
