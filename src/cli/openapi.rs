//! `waggle openapi`: the OpenAPI document of the administration API.

use super::output::{self, Failure};

/// Prints the document that a gateway of this version serves at `/admin/openapi.json`.
pub(super) fn run() -> Result<(), Failure> {
    output::print(crate::app::openapi())
}
