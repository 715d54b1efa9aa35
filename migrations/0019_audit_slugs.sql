-- Rows are found by the agent as the request names it, those of callers that were refused included. On each partition:
-- while they are built no rows are added, which wait in the spill file.
create index audit_log_slug on audit_log (slug, at, chain, seq);
