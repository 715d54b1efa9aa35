//! The `waggle` binary: parses the command line and calls the library.

use std::process::ExitCode;

use waggle::{cli, config::Environment};

fn main() -> ExitCode {
    // The only provider compiled in; an error would say that it is installed already.
    rustls::crypto::ring::default_provider().install_default().ok();
    cli::run(&Environment::of_process())
}
