-- How much a tenant, an agent and a key may use, where that is not what the settings say.

alter table tenants add column limits jsonb not null default '{}';
alter table agents add column limits jsonb not null default '{}';
alter table api_keys add column limits jsonb not null default '{}';
