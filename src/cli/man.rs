//! `waggle man`: the manual pages.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};

use super::output::Failure;

#[derive(Args)]
pub(super) struct Man {
    /// The folder, which is created if it is missing.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub(super) fn run(self, command: Command) -> Result<(), Failure> {
        let written =
            fs::create_dir_all(&self.folder).and_then(|()| clap_mangen::generate_to(command, &self.folder));
        written.map_err(|error| Failure::File(self.folder.display().to_string(), error))
    }
}
