//! Counts what is read from the database to fill memory.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use waggle::model::sources::{Interfere, Point};

#[derive(Default)]
pub(crate) struct Loads(AtomicUsize);

impl Loads {
    pub(crate) fn so_far(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Interfere for Loads {
    fn pause(&self, point: Point) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        if matches!(point, Point::CacheFillRead | Point::CredentialFillRead) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(std::future::ready(()))
    }

    fn loses(&self, _: Point) -> bool {
        false
    }
}
