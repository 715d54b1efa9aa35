//! The cache rule: how facts of a scope are cached, loaded, and invalidated by writes.
//!
//! The module is generic over the cached facts. [`Cell`] holds facts of one scope and applies the rule; a [`ScopeMap`]
//! finds the cell of a scope when the change feed raises it; a [`Loader`] bounds and times loads from the database and
//! decides when memory may answer without it; a [`Writer`] serializes the writes of a scope, commits them and raises
//! their cells; a [`MemoryBudget`] bounds all caches, of which a [`WeighedCache`] is one; a [`GroupCommit`] writes rows
//! of many callers in one commit; a [`FairSemaphore`] grants permits to payers in turn; [`KeyedCounts`] limit what is
//! open or waits, by key.

mod cell;
mod fair_queue;
mod fair_semaphore;
mod group_commit;
mod keyed_counts;
mod loader;
mod maintenance;
mod memory_budget;
mod resident_limit;
mod scope_map;
mod shared_transaction;
mod weighed_cache;
mod write_queue;
mod writer;

pub use cell::{Cell, Invalidate};
pub use fair_semaphore::{FairPermit, FairSemaphore};
pub use group_commit::GroupCommit;
pub use keyed_counts::{CountGuard, KeyedCounts};
pub use loader::{LoadLimiter, LoadOptions, Loader};
pub use maintenance::StoreMaintenance;
pub use memory_budget::{CacheStats, Charge, MemoryBudget, PROTECTED};
pub use scope_map::{CellHandle, CellMap, CellSet, ScopeCell, ScopeMap, WantedRevision};
pub use weighed_cache::WeighedCache;
pub use write_queue::QueueOptions;
pub use writer::Writer;
