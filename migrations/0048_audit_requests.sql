-- An index of the audit log by the id of the request, a Bloom filter for each 64 pages like those of the other filters, in
-- an index of its own: in theirs, no two summaries would fit on a page, and each filter would read twice as much. With the
-- time, since the planner takes a filter for cheap only if a column of the index is in the order of the rows.
--
-- Past days are not indexed, since that would read them whole while rows of spill files wait; nor is the one of today. A
-- search for a request in them reads the period that it names.

create function audit_index_requests(name text) returns void language plpgsql as $$
begin
    execute format(
        'create index if not exists %I on %I using brin (at, request text_bloom_ops (n_distinct_per_range = 1600)) '
        'with (pages_per_range = 64, autosummarize = on)', name || '_requests', name);
end
$$;

create or replace function audit_index_partition(name text) returns void language plpgsql as $$
begin
    execute format('create index if not exists %I on %I (at)', name || '_at', name);
    -- The Bloom filters are sized for the values that the 1,500 rows of 64 pages can have; together they take less than
    -- half a page of the index. New ranges are summarized by autovacuum.
    execute format(
        'create index if not exists %I on %I using brin ('
        'at, seq int8_minmax_multi_ops, chain uuid_bloom_ops (n_distinct_per_range = 16), '
        'tenant uuid_bloom_ops (n_distinct_per_range = 192), agent uuid_bloom_ops (n_distinct_per_range = 1024), '
        'slug text_bloom_ops (n_distinct_per_range = 1024), key uuid_bloom_ops (n_distinct_per_range = 640), '
        'method text_bloom_ops (n_distinct_per_range = 32), outcome text_bloom_ops (n_distinct_per_range = 32)'
        ') with (pages_per_range = 64, autosummarize = on)', name || '_ranges', name);
    perform audit_index_requests(name);
end
$$;

-- The partitions of the next days, which have no rows.
do $$
declare
    name text;
begin
    for name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'audit_log'::regclass
        and c.relname > 'audit_log_' || to_char(now() at time zone 'UTC', 'YYYYMMDD') order by c.relname
    loop
        perform audit_index_requests(name);
    end loop;
end
$$;
