-- Cheaper indexes of the audit log: a B-tree on the time, and a BRIN index with a summary of each 64 pages for
-- everything else. They belong to the partitions, not to the log, whose indexes the next migration drops.

create function audit_index_partition(name text) returns void language plpgsql as $$
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
end
$$;

-- As before, with these indexes, and with the columns of fixed length first, which saves the padding between them. The
-- log itself keeps its order of columns, which is that of `copy`.
create or replace function audit_make_partition(day date) returns void language plpgsql security definer
set search_path from current as $$
declare
    name text := 'audit_log_' || to_char(day, 'YYYYMMDD');
    members text;
begin
    if to_regclass(quote_ident(name)) is not null then
        return;
    end if;
    -- One at a time, since two replicas make the same days. A partition that another one made meanwhile is not looked for
    -- again: a wait alone does not make the catalog be read anew.
    perform pg_advisory_xact_lock(8602270457152208900);
    select string_agg(member, ', ' order by part, varying, attlen % 8, number) into members from (
        select 1 as part, a.attlen < 0 as varying, a.attlen, a.attnum as number,
            format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod))
            || case when a.attcollation <> t.typcollation then ' collate ' || a.attcollation::regcollation else '' end
            || case when a.attnotnull then ' not null' else '' end as member
        from pg_attribute a join pg_type t on t.oid = a.atttypid
        where a.attrelid = 'audit_log'::regclass and a.attnum > 0 and not a.attisdropped
        union all
        select 2, false, 0, 0, format('constraint %I %s', conname, pg_get_constraintdef(oid))
        from pg_constraint where conrelid = 'audit_log'::regclass and contype = 'c'
    ) members;
    begin
        execute format('create table %I (%s)', name, members);
    exception when duplicate_table then
        return;
    end;
    perform audit_index_partition(name);
    execute format(
        'create trigger audit_log_whole before update or delete or truncate on %I '
        'for each statement execute function audit_refuse()', name);
    execute format(
        'alter table audit_log attach partition %I for values from (%L) to (%L)',
        name, day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
end
$$;

-- Rows can be read meanwhile. Past days are written to only from spill files; rows of today, which is indexed after
-- them, wait in the spill file.
do $$
declare
    name text;
begin
    for name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'audit_log'::regclass order by c.relname
    loop
        perform audit_index_partition(name);
    end loop;
end
$$;
