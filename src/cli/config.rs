//! `waggle config`: validates and prints the settings.

use clap::Subcommand;

use super::invocation::Invocation;
use super::output::{Failure, print};
use super::runtime;
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
    pub(super) fn run(&self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        match self {
            Self::Check => check(&invocation.load(Purpose::Serve)?.settings),
            Self::Show => print(&invocation.load(Purpose::Assist)?.listing.to_string()),
            Self::Reference => print(&config::reference().map_err(Failure::Config)?),
        }
    }
}

fn check(settings: &Settings) -> Result<(), Failure> {
    let checked = runtime::run(app::check(settings))?;
    let mut problems = checked.fatal();
    let other = checked.files.iter().filter(|found| !found.prevents_start);
    let mut notes: Vec<_> = other.map(|found| format!("warning: {found}")).collect();
    for UsedAddress { setting, address, by_gateway } in checked.in_use {
        if by_gateway {
            notes.push(format!("{setting}: {address} is in use by a running gateway"));
        } else {
            problems.push(format!("{setting}: {address} is in use by another program"));
        }
    }
    if problems.is_empty() {
        notes.push("the settings are valid\n".to_owned());
        print(&notes.join("\n"))
    } else {
        Err(Failure::Usage(problems.join("\n")))
    }
}
