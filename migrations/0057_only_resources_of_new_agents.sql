-- Agents that are created from here on, when the triggers see each of their definitions.
alter table agents alter column only_resources set default true;
