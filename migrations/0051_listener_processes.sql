-- The server process of a LISTEN connection, so that what it shows is looked up; null where the replica that registered it is of a
-- version before this migration: then it is searched among all connections.
alter table feed_listeners add column pid integer;
