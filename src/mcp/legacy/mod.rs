//! The legacy era: revisions 2024-11-05 to 2025-11-25, which open a session by `initialize` or do without.

mod content;
pub mod decode;
pub mod encode;
pub mod error;
pub mod stream;

#[cfg(test)]
mod tests;
