//! `waggle completions`: prints the completions of a shell.

use clap::{Args, Command};
use clap_complete::Shell;

use super::output::{Failure, print};

/// The arguments of `waggle completions`.
#[derive(Args)]
pub(super) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "waggle", &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}
