//! `waggle demo`: the gateway with a demo agent.

use std::path::PathBuf;

use clap::Args;

use super::invocation::Invocation;
use super::output::Failure;
use super::serve;
use crate::app;

#[derive(Args)]
pub(super) struct Demo {
    /// Mount the pages of this directory as resources of the demo agent; connections may name the directory while it runs.
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
}

impl Demo {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        serve::serve(invocation, Some(app::Demo { docs: self.docs }))
    }
}
