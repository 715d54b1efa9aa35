//! `waggle migrate`: the schema, without the gateway.

use tokio::runtime::Runtime;

use super::{Sources, output::Failure};
use crate::{app, config::Purpose, telemetry};

pub(super) fn run(sources: &Sources<'_>) -> Result<(), Failure> {
    let settings = sources.load(Purpose::Assist)?.settings;
    telemetry::init(&settings.log)?;
    let runtime = Runtime::new().map_err(Failure::Runtime)?;
    let done = runtime.block_on(app::migrate(settings));
    // A name that is still being resolved is not waited for.
    runtime.shutdown_background();
    Ok(done?)
}
