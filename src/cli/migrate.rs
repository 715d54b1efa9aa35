//! `waggle migrate`: applies migrations without starting the gateway.

use clap::Args;
use tokio::runtime::Runtime;

use super::output::{Failure, print};
use super::sources::Sources;
use crate::config::Purpose;
use crate::{app, telemetry};

#[derive(Args)]
pub(super) struct Migrate {
    /// Print the pending migrations, and change nothing.
    #[arg(long)]
    status: bool,
}

impl Migrate {
    pub(super) fn run(&self, sources: &Sources<'_>) -> Result<(), Failure> {
        let settings = sources.load(Purpose::Assist)?.settings;
        telemetry::init(&settings.log)?;
        let runtime = Runtime::new().map_err(Failure::Runtime)?;
        let done = runtime.block_on(async {
            if self.status { app::schema_status(settings).await } else { app::migrate(settings).await }
        });
        // Does not wait for a DNS look-up that is still running.
        runtime.shutdown_background();
        print(&done?)
    }
}
