-- Rows that keep their place in a chain without being in the log: `quarantined` (the database refused them; they are in
-- a file) and `damaged` (lost with a corrupt spill file). Both name rows as `dropped` does.
alter table audit_chains drop constraint audit_chains_kind_check;
alter table audit_chains add constraint audit_chains_kind_check check (
    kind in ('opened', 'closed', 'interrupted', 'dropped', 'archived', 'quarantined', 'damaged', 'key')
);
