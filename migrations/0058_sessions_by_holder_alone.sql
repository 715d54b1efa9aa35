-- Sessions are counted by their holder since 0024: no query uses the index by principal, which each session was written to.
drop index sessions_principal;
