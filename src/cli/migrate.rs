//! `waggle migrate`: the schema, without the gateway.

use clap::Args;
use tokio::runtime::Runtime;

use super::{
    Sources,
    output::{Failure, print},
};
use crate::{app, config::Purpose, telemetry};

#[derive(Args)]
pub(super) struct Migrate {
    /// Say which migrations the database lacks, and change nothing.
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
        // A name that is still being resolved is not waited for.
        runtime.shutdown_background();
        print(&done?)
    }
}
