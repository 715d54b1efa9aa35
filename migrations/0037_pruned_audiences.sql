-- What was pruned for whom, so that a resumed stream tells its caller nothing of changes that did not concern it.
-- Pruned changes of everybody; null: like the floor.
alter table heads add column everybody_floor bigint check (everybody_floor between 0 and floor);

-- The newest pruned change of the callers with a label.
create table pruned_labels (
    scope uuid not null references heads on delete cascade,
    label text collate "C" not null,
    revision bigint not null,
    primary key (scope, label)
);
