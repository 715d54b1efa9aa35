//! The audit log as values: events, how they are written down as bytes, and the chains that these form.

pub mod chain;
pub mod checkpoint;
pub mod encoding;
pub mod event;
pub mod ledger;
pub mod row;
pub mod signature;
