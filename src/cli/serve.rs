//! `waggle serve`: the gateway.

use tokio::runtime::Runtime;

use super::{Sources, output::Failure};
use crate::{app, config::Purpose, telemetry};

pub(super) fn run(sources: &Sources<'_>) -> Result<(), Failure> {
    serve(sources, false)
}

/// Runs the gateway until it is told to stop.
pub(super) fn serve(sources: &Sources<'_>, demo: bool) -> Result<(), Failure> {
    let settings = sources.load(Purpose::Serve)?.settings;
    telemetry::init(&settings.log)?;
    let runtime = Runtime::new().map_err(Failure::Runtime)?;
    let done = runtime.block_on(app::run(settings, demo));
    // A name that is still being resolved is not waited for.
    runtime.shutdown_background();
    Ok(done?)
}
