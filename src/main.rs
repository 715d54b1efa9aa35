//! The `waggle` binary: parses the command line and calls the library.

use std::process::ExitCode;

use waggle::cli;
use waggle::config::Environment;

/// A request takes some dozens of small pieces of memory and gives them back on another thread as often as not.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The only provider compiled in; an error would say that it is installed already.
    rustls::crypto::ring::default_provider().install_default().ok();
    cli::run(&Environment::of_process())
}
