//! The dialect of the legacy era: revisions 2024-11-05 to 2025-11-25, with a session opened by `initialize` or without
//! one.

pub(super) mod content;
pub mod dispatch;
pub mod encode;
pub mod error;
pub mod event_id;
mod session_requests;
pub mod stream;

#[cfg(test)]
mod tests;
