//! `waggle serve`: the gateway.

use tokio::runtime::Runtime;

use super::output::Failure;
use super::sources::Sources;
use crate::app::{self, Reloader};
use crate::config::{self, Loaded, Purpose};
use crate::telemetry;

pub(super) fn run(sources: &Sources<'_>) -> Result<(), Failure> {
    serve(sources, false)
}

/// Runs the gateway until it is stopped.
pub(super) fn serve(sources: &Sources<'_>, demo: bool) -> Result<(), Failure> {
    let Loaded { settings, listing } = sources.load(Purpose::Serve)?;
    let filter = telemetry::init(&settings.log)?;
    let (environment, flags) = (sources.environment.clone(), sources.flags.clone());
    let reloader = Reloader::new(
        listing,
        move || config::load(&environment, &flags, Purpose::Serve),
        move |wanted| filter.set(wanted).map_err(|error| error.to_string()),
    );
    let runtime = Runtime::new().map_err(Failure::Runtime)?;
    let done = runtime.block_on(app::run(settings, demo, reloader));
    // Does not wait for a DNS look-up that is still running.
    runtime.shutdown_background();
    Ok(done?)
}
