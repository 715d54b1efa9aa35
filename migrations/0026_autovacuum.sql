-- Every write updates a row of heads and adds rows to changes, and as many changes are pruned a day later. By default
-- autovacuum waits until a fifth of a table is dead, which is days of writes where the tables are large. The dead
-- entries meanwhile lie where pruning looks for the oldest changes. A fiftieth is minutes of writes at any size, and
-- bounds what an index scan skips; the threshold keeps small tables from being vacuumed all the time.

alter table heads set (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);

alter table changes set (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_analyze_scale_factor = 0.02
);
