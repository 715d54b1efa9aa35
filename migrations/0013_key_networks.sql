-- From where a key may be used, and how old the keys of a tenant may become.

-- Networks as text in CIDR form; none means from anywhere.
alter table api_keys add column networks text[] not null default '{}'
    check (cardinality(networks) <= 32);

-- Null: keys may become as old as they like.
alter table tenants add column max_key_age_days integer
    check (max_key_age_days between 1 and 3650);
