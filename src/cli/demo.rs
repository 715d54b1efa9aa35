//! `waggle demo`: the gateway with a demo agent.

use super::output::Failure;
use super::serve;
use super::sources::Sources;

pub(super) fn run(sources: &Sources<'_>) -> Result<(), Failure> {
    serve::serve(sources, true)
}
