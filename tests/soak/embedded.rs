//! What the database of the tests needs.

#[path = "../it/embedded/support.rs"]
#[expect(dead_code, reason = "shared with the other tests, which use more of it")]
pub(crate) mod support;
