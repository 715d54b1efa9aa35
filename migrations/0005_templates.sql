-- Resource templates: what answers to every URI that matches, rendered when it is read.

create table templates (
    tenant uuid not null,
    agent uuid not null,
    uri_template text collate "C" not null check (octet_length(uri_template) between 1 and 512),
    name text not null check (octet_length(name) between 1 and 512),
    title text check (octet_length(title) between 1 and 512),
    description text check (octet_length(description) <= 16384),
    mime_type text check (octet_length(mime_type) between 1 and 255),
    -- JSON as text: these come back byte for byte as they were sent.
    annotations text check (octet_length(annotations) <= 65536),
    icons text check (octet_length(icons) <= 65536),
    meta text check (octet_length(meta) <= 65536),
    -- Values of its variables, by name: a JSON object of lists.
    completions text not null check (octet_length(completions) <= 65536),
    -- What is rendered, addressed as contents are.
    body bytea not null,
    -- The revision of the agent's scope that last changed this template.
    revision bigint not null check (revision > 0),
    primary key (tenant, agent, uri_template),
    foreign key (tenant, agent) references agents (tenant, uid),
    foreign key (tenant, agent, body) references contents (tenant, agent, hash)
);

-- Whether anything still names some content.
create index templates_body on templates (tenant, agent, body);
