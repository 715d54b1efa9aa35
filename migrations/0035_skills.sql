-- Skills: folders of files, whose contents are addressed as those of resources are.

create table skills (
    tenant uuid not null,
    agent uuid not null,
    -- The URI of the folder with a slash at its end.
    root text collate "C" not null check (octet_length(root) between 1 and 2048),
    -- A JSON object.
    frontmatter text not null,
    -- The files with their types, sizes and hashes: a JSON list.
    files text not null,
    -- The hashes of the files' contents.
    hashes bytea[] not null,
    labels text[] not null default '{}',
    -- The revision of the agent's scope that last changed this skill.
    revision bigint not null check (revision > 0),
    last_modified timestamptz not null,
    primary key (tenant, agent, root),
    foreign key (tenant, agent) references agents (tenant, uid)
);

-- Whether anything still names some content.
create index skills_hashes on skills using gin (hashes);
