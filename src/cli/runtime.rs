//! Runs the asynchronous part of a command.

use tokio::runtime::Builder;

use super::output::Failure;

/// Runs a future on this thread.
pub(super) fn run<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    complete(Builder::new_current_thread(), future)
}

/// Runs a future, and the tasks that it spawns on a thread for each core.
pub(super) fn run_multi_threaded<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    complete(Builder::new_multi_thread(), future)
}

fn complete<T>(mut builder: Builder, future: impl Future<Output = T>) -> Result<T, Failure> {
    aligned_timers::set_origin();
    let runtime = builder.enable_all().build().map_err(Failure::Runtime)?;
    let output = runtime.block_on(future);
    // Does not wait for a DNS look-up that is still running.
    runtime.shutdown_background();
    Ok(output)
}
