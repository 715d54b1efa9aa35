-- Completions that come from connections: the places by variable or argument as JSON, with the revision of the row, and the
-- connections that they name. A gateway of an earlier release that replaces a row leaves them; they are then of another
-- revision, and do not count.

alter table templates
    add column completion_sources text check (octet_length(completion_sources) between 1 and 524288),
    add column completion_connections uuid[],
    add constraint templates_completed check ((completion_sources is null) = (completion_connections is null));

alter table prompts
    add column completion_sources text check (octet_length(completion_sources) between 1 and 524288),
    add column completion_connections uuid[],
    add constraint prompts_completed check ((completion_sources is null) = (completion_connections is null));

-- Whether completions refer to a connection.
create index templates_completion_connections on templates using gin (completion_connections)
    where completion_connections is not null;
create index prompts_completion_connections on prompts using gin (completion_connections)
    where completion_connections is not null;
