//! Counts reads of the database that fill caches.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use waggle::model::system::{FailPoint, FaultInjector};

#[derive(Default)]
pub(crate) struct LoadCounter(AtomicUsize);

impl LoadCounter {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl FaultInjector for LoadCounter {
    fn pause(&self, point: FailPoint) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        if matches!(point, FailPoint::CacheFillRead | FailPoint::CredentialFillRead) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(std::future::ready(()))
    }

    fn fails(&self, _: FailPoint) -> bool {
        false
    }
}
