//! The threads that fetch: what a source makes them do delays no thread that answers requests.
//!
//! A client of HTTP parses any number of `1xx` heads before it yields, and bodies are decoded and hashed in the task that
//! receives them. On the threads of requests, a few such fetches of one tenant delayed the reads of all others.

use std::sync::OnceLock;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Handle, Runtime};

/// One thread for so many cores, and at least one.
const CORES_OF_A_THREAD: usize = 4;
/// The most threads, apart from those that wait for files.
const MAX_THREADS: usize = 4;

/// A runtime that starts with its first task.
#[derive(Debug, Default)]
pub(super) struct FetchRuntime(OnceLock<Option<Runtime>>);

impl FetchRuntime {
    /// Where to spawn fetches: the runtime of the caller if the threads cannot be started.
    pub(super) fn handle(&self) -> Handle {
        let runtime = self.0.get_or_init(|| {
            let cores = available_parallelism().map_or(1, usize::from);
            let threads = cores.div_ceil(CORES_OF_A_THREAD).min(MAX_THREADS);
            let built = Builder::new_multi_thread()
                .worker_threads(threads)
                .thread_name("waggle-fetch")
                .enable_all()
                .build();
            built.inspect_err(|error| tracing::warn!(%error, "threads of fetches not started")).ok()
        });
        runtime.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for FetchRuntime {
    fn drop(&mut self) {
        // Does not wait for tasks: it may be dropped by one.
        if let Some(runtime) = self.0.take().flatten() {
            runtime.shutdown_background();
        }
    }
}
