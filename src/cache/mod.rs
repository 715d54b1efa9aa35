//! The cache rule: what is held in memory of a scope, how it is loaded, and how a write invalidates it.
//!
//! Nothing here knows what is cached. [`Cell`] holds facts about one scope and applies the rule; a [`ScopeMap`] finds the
//! cell of a scope when the change feed raises it; a [`Loader`] bounds and times loads from the database and decides when
//! memory may answer without it; a [`Writer`] serializes the writes of a scope, commits them and raises their cells.

mod audited;
mod cell;
mod cell_map;
mod loader;
mod maintenance;
mod scope_map;
mod write_queue;
mod writer;

pub use cell::{Cell, Invalidate, ScopeCell};
pub use cell_map::CellMap;
pub use loader::{LoadLimiter, LoadOptions, Loader};
pub use maintenance::StoreMaintenance;
pub use scope_map::{CellSet, ScopeMap};
pub use write_queue::QueueOptions;
pub use writer::Writer;
