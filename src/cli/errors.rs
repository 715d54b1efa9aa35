//! `waggle errors`: every error code, its cause and what to do.

use super::output::{self, Failure};

pub(super) fn run() -> Result<(), Failure> {
    output::print(&crate::app::error_codes())
}
