//! `waggle config`: the settings, checked or shown.

use clap::Subcommand;

use super::{
    Sources,
    output::{Failure, print},
};
use crate::config::Purpose;

#[derive(Subcommand)]
pub(super) enum Config {
    /// Check the settings for `serve`: everything that is wrong, one line each.
    Check,
    /// Show the settings in force as a configuration file, secrets masked, each with who set it.
    Show,
}

impl Config {
    pub(super) fn run(&self, sources: &Sources<'_>) -> Result<(), Failure> {
        match self {
            Self::Check => sources.load(Purpose::Serve).and_then(|_| print("the settings are valid\n")),
            Self::Show => print(&sources.load(Purpose::Assist)?.listing.to_string()),
        }
    }
}
