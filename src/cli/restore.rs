//! `waggle restore`: restores a backup into an empty data directory.

use std::path::PathBuf;

use clap::Args;
use time::format_description::well_known::Rfc3339;

use super::invocation::Invocation;
use super::output::Failure;
use super::progress::Verbosity;
use super::runtime;
use crate::app;
use crate::config::Purpose;

#[derive(Args)]
pub(super) struct Restore {
    /// The folder that `waggle backup` wrote.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    verbosity: Verbosity,
}

impl Restore {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let settings = invocation.load(Purpose::Assist)?.settings;
        let progress = self.verbosity.task("restoring the database");
        let restored = app::restore(&settings, &self.folder);
        let app::Backup { created_at, keys, .. } = runtime::run_multi_threaded(restored)??;
        let at = created_at.format(&Rfc3339).unwrap_or_default();
        let data_dir = settings.embedded.data_dir.display();
        let keys = if keys.is_empty() { "no key files".to_owned() } else { keys.join(", ") };
        progress.print(&format!("restored the database of {at} and {keys} into {data_dir}\n"))
    }
}
