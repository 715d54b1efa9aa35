-- Inbound webhooks: signed requests from outside, after which content counts as changed.

create table hooks (
    uid uuid primary key,
    tenant uuid not null,
    agent uuid not null,
    -- The URIs of the resources that count as changed.
    uris text[] not null,
    -- The secret that requests are signed with, encrypted as those of connections are.
    key_id text collate "C" not null,
    sealed bytea not null,
    created_at timestamptz not null,
    foreign key (tenant, agent) references agents (tenant, uid)
);

create index hooks_agent on hooks (tenant, agent, uid);
-- Which keys are in use.
create index hooks_key on hooks (key_id);

-- The messages that were counted, for as long as one may be sent again.
create table hook_messages (
    hook uuid not null references hooks (uid) on delete cascade,
    message text collate "C" not null check (octet_length(message) <= 256),
    received_at timestamptz not null,
    primary key (hook, message)
);

create index hook_messages_received on hook_messages (received_at);
