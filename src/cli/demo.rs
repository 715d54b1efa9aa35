//! `waggle demo`: the gateway with a demo agent.

use super::{Sources, output::Failure, serve};

pub(super) fn run(sources: &Sources<'_>) -> Result<(), Failure> {
    serve::serve(sources, true)
}
