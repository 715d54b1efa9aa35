-- What one PUT of a resource that is there, with new contents, does in the database: see src/registry/resources.rs and
-- src/store. Contents and their hash are made here, where the gateway sends them.
\set n random(1, 9000000000000000000)
select a.uid, a.slug, a.tenant, t.slug as tenant_slug, a.name, a.title, a.instructions, a.access, a.enabled, h.revision, a.created_at from agents a join tenants t on t.uid = a.tenant join heads h on h.scope = a.uid where a.slug = 'bench-write-' || :client_id and a.deleted_at is null \gset
begin;
select revision + 1 as next from heads where scope = :uid for no key update \gset
select exists (select from agents where tenant = :tenant and uid = :uid and deleted_at is null) as lives;
select uri, name, title, description, mime_type, annotations, icons, meta, revision, last_modified from resources where tenant = :tenant and agent = :uid and uri = 'bench://writes/target';
select uri, part_uri, mime_type, kind, hash, size from resource_contents where tenant = :tenant and agent = :uid and uri = 'bench://writes/target' order by ordinal;
insert into resources (tenant, agent, uri, name, title, description, mime_type, annotations, icons, meta, source, revision, last_modified) values (:tenant, :uid, 'bench://writes/target', 'target', null, null, 'text/markdown', null, null, null, 'inline', :next, now()) on conflict (tenant, agent, uri) do update set name = excluded.name, title = excluded.title, description = excluded.description, mime_type = excluded.mime_type, annotations = excluded.annotations, icons = excluded.icons, meta = excluded.meta, source = excluded.source, revision = excluded.revision, last_modified = excluded.last_modified;
with freed as (delete from resource_contents where tenant = :tenant and agent = :uid and uri = 'bench://writes/target' returning hash) update contents set orphaned_at = now() where tenant = :tenant and agent = :uid and hash in (select hash from freed);
insert into contents (tenant, agent, hash, bytes) values (:tenant, :uid, sha256(convert_to(:n::text, 'UTF8')), convert_to(rpad(:n::text, 1024, 'x'), 'UTF8')) on conflict (tenant, agent, hash) do update set orphaned_at = null;
insert into resource_contents (tenant, agent, uri, ordinal, part_uri, mime_type, kind, hash, size) values (:tenant, :uid, 'bench://writes/target', 0, null, null, 'text', sha256(convert_to(:n::text, 'UTF8')), 1024);
with written as (insert into changes (scope, revision, ordinal, kind, subject) select * from unnest(array[:uid]::uuid[], array[:next]::bigint[], array[0]::integer[], array['resource_contents']::text[], array['bench://writes/target']::text[]) returning scope, revision, ordinal) update heads set revision = written.revision from written where heads.scope = written.scope and written.ordinal = 0;
commit;
