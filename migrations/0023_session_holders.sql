-- Whom sessions are accounted to, and which of them have an open stream.

alter table sessions
-- The principal or, of a caller without a credential, what stands for its address. Null in rows of older versions:
-- their principal, or the nil UUID.
add column holder uuid,
-- When the session was last noted to have an open stream.
add column streamed_at timestamptz;
