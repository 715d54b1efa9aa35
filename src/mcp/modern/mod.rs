//! The dialect of the modern era: revision 2026-07-28, whose requests are self-contained.

pub mod decode;
pub mod encode;
pub mod error;
pub mod listen;

pub use error::ModernError;

#[cfg(test)]
mod tests;
