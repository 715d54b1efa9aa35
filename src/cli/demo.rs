//! `waggle demo`: the gateway with a demo agent.

use std::path::PathBuf;

use clap::Args;

use super::output::Failure;
use super::serve;
use super::sources::Sources;
use crate::app;

#[derive(Args)]
pub(super) struct Demo {
    /// Mount the pages of this directory as resources of the demo agent; connections may name the directory while it runs.
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
}

impl Demo {
    pub(super) fn run(self, sources: &Sources<'_>) -> Result<(), Failure> {
        serve::serve(sources, Some(app::Demo { docs: self.docs }))
    }
}
