-- Labels: which callers see a definition, and what the callers with a key see.
alter table resources add column labels text[] not null default '{}';
alter table templates add column labels text[] not null default '{}';
alter table prompts add column labels text[] not null default '{}';
alter table api_keys add column labels text[] not null default '{}';
