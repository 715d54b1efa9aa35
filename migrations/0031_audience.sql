-- The callers whom a change concerns: those with one of these labels; null: everybody.
alter table changes add column audience text[];
