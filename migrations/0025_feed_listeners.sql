-- The connections on which replicas LISTEN. What a replica has acknowledged stands in the application_name of its
-- connection, which ends with the connection. This row outlives it, so that a replica that has not noticed the loss of
-- its connection yet is waited for until it does not trust its memory any more.
create table feed_listeners (
    listener text collate "C" primary key,
    since timestamptz not null default now()
);
