//! The modern era: revision 2026-07-28, every request complete in itself.

pub mod decode;
pub mod encode;
pub mod error;
pub mod listen;

pub use error::ModernError;

#[cfg(test)]
mod tests;
