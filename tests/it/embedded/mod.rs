//! Helpers of tests on the embedded database.

pub(crate) mod support;
