-- Limits hold from above: who set a limit, who disabled an agent, and who made a key.

-- What an owner set for a key, beside `limits`, which the operator set; the tighter of both is in force. Who set the
-- limits of older keys is not known: they count as the operator's.
alter table api_keys add column owner_limits jsonb not null default '{}';
-- The principal of the key that created or rotated this one; null for the operator.
alter table api_keys add column maker uuid;
create index api_keys_maker on api_keys (tenant, maker) where maker is not null;

-- Who disabled the agents of before is not known: only the operator enables them again.
alter table agents add column disabled_by_operator boolean not null default false;
update agents set disabled_by_operator = true where not enabled;
-- Under which agent's uid quotas and rates are counted: the first that had the slug. Null: its own.
alter table agents add column quota_holder uuid;

-- What a slug keeps while no agent has it.
alter table retired_agents add column limits jsonb not null default '{}';
alter table retired_agents add column disabled_by_operator boolean not null default false;
alter table retired_agents add column quota_holder uuid;
create index retired_agents_tenant on retired_agents (tenant);

-- The limits that a new agent of the tenant starts with.
alter table tenants add column agent_limits jsonb not null default '{}';
