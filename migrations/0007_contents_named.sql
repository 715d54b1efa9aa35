-- What names some content is found by the content's address first. With the agent first these indexes seem as good as
-- the primary keys to a database that has not yet counted what an agent registered a moment ago: it then removed each
-- of ten thousand resources by reading all of them.

drop index resource_contents_hash;
create index resource_contents_hash on resource_contents (hash, tenant, agent);

drop index templates_body;
create index templates_body on templates (body, tenant, agent);

drop index prompts_messages;
create index prompts_messages on prompts (messages, tenant, agent);
