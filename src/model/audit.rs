//! The audit log as values: events, their encoding, the hash chains formed of them, and signatures.

pub mod chain;
pub mod checkpoint;
pub mod digest;
pub mod encoding;
pub mod event;
pub mod fingerprint;
pub mod ledger;
pub mod row;
pub mod signature;
pub mod write;
