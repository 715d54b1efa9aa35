//! Work on threads for blocking calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::FetchError;

/// Runs work on a thread for blocking calls. Work that panics counts as a source that is unreachable.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| FetchError::Unreachable)?
}

/// Sets a flag when it is dropped: work whose future was dropped ends once it sees it.
#[derive(Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// The flag.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Sets the flag.
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.cancel();
    }
}
