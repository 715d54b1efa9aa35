//! The `waggle` binary: parses the command line and calls the library.

use std::process::ExitCode;

use waggle::cli;
use waggle::config::Environment;

/// A request makes dozens of small allocations, about half of which are freed on another thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The only provider compiled in; the only possible error is that it is installed already.
    rustls::crypto::ring::default_provider().install_default().ok();
    cli::run(&Environment::of_process())
}
