-- A table of forecasts, for SQLite and PostgreSQL:
--   examples/sources/sqlite weather.db < examples/sources/table.sql
--   psql "$DATABASE" -f examples/sources/table.sql
create table forecast (city text primary key, celsius integer not null);
insert into forecast (city, celsius) values ('Oslo', 5), ('Riga', 9), ('Rome', 24);
