-- Identifies the history that the database is in, so that one that was restored or failed over is noticed.

-- Renewed where a replica finds that revisions were lost; whoever restores a backup may renew it too.
alter table gateway add column epoch uuid not null default gen_random_uuid();

-- The cluster, its timeline, the database and the storage of the table of revisions. What the server does not show to
-- this role is left out.
create function waggle_timeline() returns text language plpgsql stable as $$
declare
    cluster text;
    timeline text;
begin
    begin
        select system_identifier::text into cluster from pg_control_system();
    exception when others then
        cluster := null;
    end;
    begin
        if not pg_is_in_recovery() then
            timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
        end if;
    exception when others then
        timeline := null;
    end;
    return concat_ws(
        '/',
        coalesce(cluster, '-'),
        coalesce(timeline, '-'),
        (select oid from pg_database where datname = current_database()),
        pg_relation_filenode(to_regclass('heads'))
    );
end
$$;
