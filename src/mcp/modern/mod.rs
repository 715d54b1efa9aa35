//! The dialect of the modern era: revision 2026-07-28, whose requests are self-contained.

pub mod dispatch;
pub mod encode;
pub mod error;
pub mod form;
pub mod listen;
pub mod prompt;

pub use error::ModernError;

#[cfg(test)]
mod tests;
