//! `waggle backup`: copies the embedded database and its keys to a folder.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::invocation::Invocation;
use super::output::Failure;
use super::progress::Verbosity;
use super::runtime;
use crate::app;
use crate::config::Purpose;

#[derive(Args)]
pub(super) struct Backup {
    /// The new folder, which only its owner can read.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Leave out the key files, which are then to be kept elsewhere.
    #[arg(long)]
    without_keys: bool,
    /// Give up after this many seconds in which the copy of the database has not grown.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    stall_seconds: u32,
    #[command(flatten)]
    verbosity: Verbosity,
}

impl Backup {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let settings = invocation.load(Purpose::Assist)?.settings;
        let progress = self.verbosity.task("copying the database");
        let stall = Duration::from_secs(self.stall_seconds.into());
        let copied = app::backup(&settings, &self.folder, !self.without_keys, stall);
        let app::Backup { keys, elsewhere, .. } = runtime::run_multi_threaded(copied)??;
        let mut text = format!("wrote {} with the database and ", self.folder.display());
        // Writing to a string does not fail.
        let _ = match keys.as_slice() {
            [] => writeln!(text, "no key files"),
            keys => writeln!(text, "the key files {}", keys.join(", ")),
        };
        for file in elsewhere {
            let _ = writeln!(text, "not in it: {}", file.display());
        }
        progress.print(&text)
    }
}
