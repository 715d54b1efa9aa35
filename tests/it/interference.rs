//! Holds a gateway at a point, or makes it lose something there.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use waggle::model::sources::{Interfere, Point};

/// Tells that somebody came, and hears that he may go on.
type Held = (oneshot::Sender<()>, oneshot::Receiver<()>);

/// Interference that a test directs.
#[derive(Default)]
pub(crate) struct Director {
    holds: Mutex<HashMap<Point, Held>>,
    faults: Mutex<HashMap<Point, Fault>>,
    /// Of each hundred wakes, how many are lost.
    pub(crate) lost_percent: AtomicU32,
}

/// How a path to the database fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fault {
    /// It does not.
    #[default]
    None,
    /// At once.
    Refused,
    /// No answer comes.
    Swallowed,
}

/// A gateway that will be held when it comes to a point, once.
pub(crate) struct Hold {
    reached: oneshot::Receiver<()>,
    release: oneshot::Sender<()>,
}

impl Director {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Holds whoever comes to `point` next.
    pub(crate) fn hold(&self, point: Point) -> Hold {
        let (reached_send, reached) = oneshot::channel();
        let (release, release_receive) = oneshot::channel();
        self.holds.lock().unwrap().insert(point, (reached_send, release_receive));
        Hold { reached, release }
    }

    /// From now on everything that comes to `point` fails like this.
    pub(crate) fn fail(&self, point: Point, fault: Fault) {
        self.faults.lock().unwrap().insert(point, fault);
    }

    fn fault(&self, point: Point) -> Fault {
        self.faults.lock().unwrap().get(&point).copied().unwrap_or_default()
    }

    pub(crate) fn lose_wakes(&self, percent: u32) {
        self.lost_percent.store(percent, Ordering::Relaxed);
    }
}

impl Hold {
    /// Waits until the gateway is there, then lets the test do something, then lets the gateway go on.
    pub(crate) async fn meanwhile<T>(self, work: impl Future<Output = T>) -> T {
        tokio::time::timeout(std::time::Duration::from_secs(20), self.reached).await.unwrap().unwrap();
        let done = work.await;
        let _ = self.release.send(());
        done
    }
}

impl Interfere for Director {
    fn pause(&self, point: Point) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let held = self.holds.lock().unwrap().remove(&point);
        Box::pin(async move {
            if let Some((reached, release)) = held {
                let _ = reached.send(());
                let _ = release.await;
            }
            if self.fault(point) == Fault::Swallowed {
                std::future::pending::<()>().await;
            }
        })
    }

    fn loses(&self, point: Point) -> bool {
        self.fault(point) == Fault::Refused
            || point == Point::Wake && rand::random_range(0..100) < self.lost_percent.load(Ordering::Relaxed)
    }
}
