-- The sets of tools that an agent offers to clients that know only tools.
alter table agents add column tools text[] not null default '{}';
