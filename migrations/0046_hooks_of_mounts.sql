-- Hooks that name a mount, which is scanned at once after a signed request.

alter table hooks
-- The name of the mount; such a hook has no URIs.
add column mount text collate "C" check (mount ~ '^[a-z0-9][a-z0-9_-]{0,62}$');

alter table mounts
-- The revision at which a scan was last requested: the scanner compares it with the one that it has seen.
add column requested bigint not null default 0;
