-- When a change was written, so that old ones are pruned. Those that are there already count as new.

alter table changes add column at timestamptz not null default now();

-- What is old.
create index changes_at on changes (at);

-- The newest transaction of which a change was pruned. A sweep that would have to look further back than this finds
-- less than there was, and asks for all heads instead.
alter table gateway add column pruned_xid xid8 not null default '0';
