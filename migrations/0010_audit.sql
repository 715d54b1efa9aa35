-- The audit log: what was asked of the gateway, in chains that show when somebody has changed them (docs/audit.md).

-- One row an event, in the order in which they are hashed: all columns but the last, in PostgreSQL's binary form.
create table audit_log (
    version smallint not null,
    chain uuid not null,
    seq bigint not null check (seq > 0),
    previous bytea not null check (octet_length(previous) = 32),
    at timestamptz not null,
    request text not null,
    trace bytea check (octet_length(trace) = 16),
    tenant uuid,
    agent uuid,
    slug text collate "C",
    principal uuid,
    principal_kind text not null,
    key uuid,
    client text not null,
    client_name text,
    client_version text,
    protocol text,
    session uuid,
    method text collate "C" not null,
    subject text collate "C",
    outcome text collate "C" not null,
    status smallint,
    micros bigint not null,
    bytes_in bigint not null,
    bytes_out bigint,
    revision bigint,
    before bytea check (octet_length(before) = 32),
    after bytea check (octet_length(after) = 32),
    hash bytea not null check (octet_length(hash) = 32),
    primary key (chain, seq, at)
) partition by range (at);

-- Newest first: of the gateway, of a tenant, of an agent.
create index audit_log_at on audit_log (at, chain, seq);
create index audit_log_tenant on audit_log (tenant, at, chain, seq);
create index audit_log_agent on audit_log (agent, at, chain, seq);

-- How far each chain goes: raised by the transaction that writes its rows. The nil chain is `audit_chains` itself.
create table audit_heads (
    chain uuid primary key,
    seq bigint not null check (seq >= 0),
    hash bytea not null check (octet_length(hash) = 32),
    at timestamptz not null
) with (fillfactor = 50);

insert into audit_heads (chain, seq, hash, at)
values ('00000000-0000-0000-0000-000000000000', 0, decode(repeat('00', 32), 'hex'), now());

-- The chain of chains: that one began, that it ended and where, that some of its rows were dropped for their age.
create table audit_chains (
    number bigint primary key check (number > 0),
    previous bytea not null check (octet_length(previous) = 32),
    at timestamptz not null,
    kind text not null check (kind in ('opened', 'closed', 'interrupted', 'dropped')),
    chain uuid not null,
    -- Of `dropped`: the first row that is gone, and the hash before it.
    first bigint,
    before bytea,
    -- The last row, and its hash: of the chain, or of what was dropped.
    last bigint not null,
    head bytea not null check (octet_length(head) = 32),
    hash bytea not null check (octet_length(hash) = 32)
);
create index audit_chains_chain on audit_chains (chain);

-- What a change's own transaction says of it, until a writer moves it into the log: everything of a row but its place
-- in a chain, in the form in which it is hashed.
create table audit_outbox (
    id uuid primary key,
    version smallint not null,
    event bytea not null
) with (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000);

create function audit_refuse() returns trigger language plpgsql as $$
begin
    raise exception '% is only ever added to', tg_table_name using errcode = 'insufficient_privilege';
end
$$;

create trigger audit_log_unchanged before update or delete on audit_log
    for each row execute function audit_refuse();
create trigger audit_log_whole before update or delete or truncate on audit_log
    for each statement execute function audit_refuse();
create trigger audit_chains_unchanged before update or delete on audit_chains
    for each row execute function audit_refuse();
create trigger audit_chains_whole before update or delete or truncate on audit_chains
    for each statement execute function audit_refuse();
create trigger audit_heads_kept before delete on audit_heads
    for each row execute function audit_refuse();
create trigger audit_heads_whole before delete or truncate on audit_heads
    for each statement execute function audit_refuse();

-- Makes the partition of a day in UTC, unless it is there. Attached, not created in place, which would lock out whoever
-- reads or writes the log. Runs as its owner, so that who runs the gateway need not own the log.
create function audit_make_partition(day date) returns void language plpgsql security definer
set search_path from current as $$
declare
    name text := 'audit_log_' || to_char(day, 'YYYYMMDD');
begin
    if to_regclass(quote_ident(name)) is not null then
        return;
    end if;
    -- One at a time, since two replicas make the same days. What the other one made is not looked for again: it was found
    -- missing, and a wait alone does not make the catalog be read anew.
    perform pg_advisory_xact_lock(8602270457152208900);
    begin
        execute format(
            'create table %I (like audit_log including defaults including constraints including indexes)', name);
    exception when duplicate_table then
        return;
    end;
    execute format(
        'create trigger audit_log_whole before update or delete or truncate on %I '
        'for each statement execute function audit_refuse()', name);
    execute format(
        'alter table audit_log attach partition %I for values from (%L) to (%L)',
        name, day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
end
$$;
