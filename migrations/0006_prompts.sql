-- Prompts: messages that are rendered with a client's arguments.

create table prompts (
    tenant uuid not null,
    agent uuid not null,
    name text collate "C" not null check (octet_length(name) between 1 and 512),
    title text check (octet_length(title) between 1 and 512),
    description text check (octet_length(description) <= 16384),
    -- JSON as text: these come back byte for byte as they were sent.
    icons text check (octet_length(icons) <= 65536),
    meta text check (octet_length(meta) <= 65536),
    -- The arguments with their completions: a JSON list.
    arguments text not null check (octet_length(arguments) <= 262144),
    -- A JSON list, addressed as contents are.
    messages bytea not null,
    -- The revision of the agent's scope that last changed this prompt.
    revision bigint not null check (revision > 0),
    primary key (tenant, agent, name),
    foreign key (tenant, agent) references agents (tenant, uid),
    foreign key (tenant, agent, messages) references contents (tenant, agent, hash)
);

-- Whether anything still names some content.
create index prompts_messages on prompts (tenant, agent, messages);
