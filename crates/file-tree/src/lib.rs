//! Trees of files as URIs: which files [globs](PathFilter) select, how a [path](encode) is written in a URI, and how what a
//! scan found [differs](differences) from what is recorded.
//!
//! Paths are relative, with `/` between their segments, and decoded.

mod diff;
mod filter;
mod path;

pub use self::diff::{Difference, differences};
pub use self::filter::{FilterError, MAX_GLOB_BYTES, MAX_GLOBS, PathFilter};
pub use self::path::{decode, encode};
