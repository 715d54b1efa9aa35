-- Whether an agent is known to have never had definitions of other kinds than resources: its first read then looks for no others.
-- Not known of the agents that exist: to find out would lock the rows of all of them. The triggers of the next migrations keep it, also
-- while replicas of an earlier version write.
alter table agents add column only_resources boolean not null default false;

-- Runs as its owner, whose schema is not that of every role that writes. An array, so that a plan that was made for many rows does not
-- read all agents for one.
create function agent_has_other_definitions() returns trigger
language plpgsql security definer set search_path from current as $$
begin
    update agents set only_resources = false
    where uid = any (array(select distinct agent from added)) and only_resources;
    return null;
end
$$;
