//! `waggle config`: validates and prints the settings.

use clap::Subcommand;
use tokio::runtime::Builder;

use super::output::{Failure, print};
use super::sources::Sources;
use crate::app::{self, UsedAddress};
use crate::config::{self, Purpose, Settings};

#[derive(Subcommand)]
pub(super) enum Config {
    /// Validate the settings for `serve`, and the files, directories and ports they name: all errors, one per line.
    Check,
    /// Print the effective settings as a configuration file, secrets masked, each with its source.
    Show,
    /// Print every setting with its documentation and default, as a configuration file.
    Reference,
}

impl Config {
    pub(super) fn run(&self, sources: &Sources<'_>) -> Result<(), Failure> {
        match self {
            Self::Check => check(&sources.load(Purpose::Serve)?.settings),
            Self::Show => print(&sources.load(Purpose::Assist)?.listing.to_string()),
            Self::Reference => print(&config::reference().map_err(Failure::Config)?),
        }
    }
}

fn check(settings: &Settings) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let checked = app::check(settings).await;
        problems = checked.fatal();
        let other = checked.files.iter().filter(|found| !found.prevents_start);
        notes.extend(other.map(|found| format!("warning: {found}")));
        for UsedAddress { setting, address, by_gateway } in checked.in_use {
            if by_gateway {
                notes.push(format!("{setting}: {address} is in use by a running gateway"));
            } else {
                problems.push(format!("{setting}: {address} is in use by another program"));
            }
        }
    });
    // Does not wait for a DNS look-up that is still running.
    runtime.shutdown_background();
    if problems.is_empty() {
        notes.push("the settings are valid\n".to_owned());
        print(&notes.join("\n"))
    } else {
        Err(Failure::Usage(problems.join("\n")))
    }
}
