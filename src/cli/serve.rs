//! `waggle serve`: the gateway.

use std::io::{self, Write};

use clap::Args;

use super::doctor;
use super::invocation::Invocation;
use super::output::Failure;
use super::runtime;
use crate::app::{self, DiagnosedAt, Reloader};
use crate::config::{self, Loaded, Purpose};
use crate::telemetry;

#[derive(Args)]
pub(super) struct Serve {
    /// First check what `waggle doctor` checks, and that the addresses to listen on are free; start only if nothing fails.
    #[arg(long)]
    check: bool,
}

impl Serve {
    pub(super) fn run(&self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        if self.check {
            let diagnosis = doctor::diagnose(&invocation.load(Purpose::Serve)?.settings, DiagnosedAt::Start)?;
            // A failure of standard error cannot be reported.
            io::stderr().write_all(doctor::text(&diagnosis).as_bytes()).ok();
            if !diagnosis.is_healthy() {
                return Err(Failure::Unhealthy);
            }
        }
        serve(invocation, None)
    }
}

/// Runs the gateway until it is stopped.
pub(super) fn serve(invocation: &Invocation<'_>, demo: Option<app::Demo>) -> Result<(), Failure> {
    let Loaded { settings, listing } = invocation.load(Purpose::Serve)?;
    let filter = telemetry::init(&settings.log)?;
    let (environment, flags) = (invocation.environment.clone(), invocation.flags.clone());
    let reloader = Reloader::new(
        listing,
        move || config::load(&environment, &flags, Purpose::Serve),
        move |wanted| filter.set(wanted).map_err(|error| error.to_string()),
    );
    Ok(runtime::run_multi_threaded(app::run(settings, demo, reloader))??)
}
