-- What was used: by hour and method for people to see, by day and month where there is a quota. No foreign keys: it
-- outlives what it tells about.

create table agent_usage (
    agent uuid not null,
    hour timestamptz not null check (hour = date_trunc('hour', hour, 'UTC')),
    method text collate "C" not null check (octet_length(method) between 1 and 64),
    calls bigint not null check (calls >= 0),
    errors bigint not null check (errors >= 0),
    denied bigint not null check (denied >= 0),
    bytes_in bigint not null check (bytes_in >= 0),
    bytes_out bigint not null check (bytes_out >= 0),
    primary key (agent, hour, method)
);

-- What is old.
create index agent_usage_hour on agent_usage (hour);

-- What replicas have taken of a quota, in advance, to give out from memory.
create table quotas (
    -- An agent or a tenant.
    holder uuid not null,
    period text not null check (period in ('day', 'month')),
    start date not null,
    calls bigint not null check (calls >= 0),
    bytes bigint not null check (bytes >= 0),
    -- What the last to come was given.
    granted_calls bigint not null check (granted_calls >= 0),
    granted_bytes bigint not null check (granted_bytes >= 0),
    primary key (holder, period, start)
) with (fillfactor = 50);

-- What is old.
create index quotas_start on quotas (start);

-- What one replica is given of what is left: what it needs, or a small part, never more than there is. So nobody is
-- let in beyond a quota, and little of it lies with a replica that does not need it.
create function quota_grant(used bigint, most bigint, needed bigint) returns bigint
language sql immutable
return greatest(0, least(most - used, greatest(needed, (most - used) / 512)));
