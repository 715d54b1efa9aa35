//! The event streams of this replica, and which changes each of them has yet to send.
//!
//! An agent with open streams has a `Topic`, which reads the agent's changes in order of revision and marks
//! the affected subjects in the `DirtySet` of each interested stream. A change is marked only once every
//! replica that may answer from memory has acknowledged its revision, so that a client that is notified can
//! read the new state from any replica. A stream keeps a set, never a queue.

mod dirty_set;
mod effects;
mod follow;
mod replay;
pub(super) mod streams;
mod subscribe;
mod subscription;
mod topic;
mod write_spans;

pub use dirty_set::Cause;
pub use subscription::{ChangeEvent, Subscription, UNKNOWN_WATERMARK};
