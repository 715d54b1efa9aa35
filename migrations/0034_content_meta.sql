-- The `_meta` of a content, JSON as sent.
alter table resource_contents add column meta text;
