//! `waggle migrate`: applies migrations without starting the gateway.

use clap::Args;

use super::invocation::Invocation;
use super::output::{Failure, print};
use super::runtime;
use crate::config::Purpose;
use crate::{app, telemetry};

#[derive(Args)]
pub(super) struct Migrate {
    /// Print the pending migrations, and change nothing.
    #[arg(long)]
    status: bool,
}

impl Migrate {
    pub(super) fn run(&self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let settings = invocation.load(Purpose::Assist)?.settings;
        telemetry::init(&settings.log)?;
        let done = runtime::run_multi_threaded(async {
            if self.status { app::schema_status(settings).await } else { app::migrate(settings).await }
        })?;
        print(&done?)
    }
}
