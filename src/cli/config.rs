//! `waggle config`: the settings, checked or shown.

use clap::Subcommand;
use tokio::runtime::Builder;

use super::{
    Sources,
    health::{is_gateway, local_url},
    output::{Failure, print},
};
use crate::app::{self, Checked};
use crate::config::{Purpose, Settings};

#[derive(Subcommand)]
pub(super) enum Config {
    /// Check the settings for `serve`, and the files, directories and ports that they name: everything that is wrong,
    /// one line each.
    Check,
    /// Show the settings in force as a configuration file, secrets masked, each with who set it.
    Show,
}

impl Config {
    pub(super) fn run(&self, sources: &Sources<'_>) -> Result<(), Failure> {
        match self {
            Self::Check => check(&sources.load(Purpose::Serve)?.settings),
            Self::Show => print(&sources.load(Purpose::Assist)?.listing.to_string()),
        }
    }
}

fn check(settings: &Settings) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let Checked { problems: found, in_use } = app::check(settings).await;
        problems = found;
        for (setting, address) in in_use {
            let url = local_url(&settings.server, address)?;
            if is_gateway(url.as_str()).await {
                notes.push(format!("{setting}: {address} is in use by a running gateway"));
            } else {
                problems.push(format!("{setting}: {address} is in use by another program"));
            }
        }
        Ok::<_, Failure>(())
    })?;
    // A name that is still being resolved is not waited for.
    runtime.shutdown_background();
    if problems.is_empty() {
        notes.push("the settings are valid\n".to_owned());
        print(&notes.join("\n"))
    } else {
        Err(Failure::Usage(problems.join("\n")))
    }
}
