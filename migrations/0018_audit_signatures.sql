-- Entries of the chain of chains that are signed, and say under which retention rows were dropped (docs/audit.md).

alter table audit_chains
    add column version smallint not null default 1,
    -- Of `dropped`: rows of the days before this one are gone, which were kept for so many days.
    add column cutoff date,
    add column retain_days integer,
    -- Of `key`: the Ed25519 public key that signs from here on.
    add column key bytea check (octet_length(key) = 32),
    -- The public key that signs the entry, and its signature over the hash.
    add column signer bytea check (octet_length(signer) = 32),
    add column signature bytea check (octet_length(signature) = 64);

alter table audit_chains drop constraint audit_chains_kind_check;
alter table audit_chains add constraint audit_chains_kind_check
    check (kind in ('opened', 'closed', 'interrupted', 'dropped', 'archived', 'quarantined', 'key'));

create index audit_chains_keys on audit_chains (key) where key is not null;

-- When a checkpoint was last written to its place outside, and until when a replica has undertaken to write the next.
create table audit_checkpoints (
    single boolean primary key default true check (single),
    made timestamptz not null default '-infinity',
    leased timestamptz not null default '-infinity'
);
insert into audit_checkpoints default values;
