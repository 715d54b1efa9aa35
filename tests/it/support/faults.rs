//! Pauses a gateway at a fail point, or makes an action fail there.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use waggle::model::system::{FailPoint, FaultInjector};

/// Signals that the gateway has arrived, and waits for its release.
type Held = (oneshot::Sender<()>, oneshot::Receiver<()>);

/// The faults that a test injects and removes.
#[derive(Default)]
pub(crate) struct FaultScript {
    holds: Mutex<HashMap<FailPoint, Held>>,
    faults: Mutex<HashMap<FailPoint, Fault>>,
    arrivals: Mutex<HashMap<FailPoint, usize>>,
    /// How many of a hundred notifications are lost.
    lost_percent: AtomicU32,
}

/// How a path to the database fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fault {
    /// It does not fail.
    #[default]
    None,
    /// Immediately.
    Refused,
    /// No answer arrives.
    Swallowed,
}

/// A pause at a fail point, for the first request that reaches it.
pub(crate) struct Hold {
    reached: oneshot::Receiver<()>,
    release: oneshot::Sender<()>,
}

impl FaultScript {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Pauses the next arrival at `point`.
    pub(crate) fn hold(&self, point: FailPoint) -> Hold {
        let (reached_send, reached) = oneshot::channel();
        let (release, release_receive) = oneshot::channel();
        self.holds.lock().unwrap().insert(point, (reached_send, release_receive));
        Hold { reached, release }
    }

    /// Makes every action at `point` fail in this way.
    pub(crate) fn fail(&self, point: FailPoint, fault: Fault) {
        self.faults.lock().unwrap().insert(point, fault);
    }

    /// How often the gateway has arrived at `point`.
    pub(crate) fn arrivals(&self, point: FailPoint) -> usize {
        self.arrivals.lock().unwrap().get(&point).copied().unwrap_or_default()
    }

    fn fault(&self, point: FailPoint) -> Fault {
        self.faults.lock().unwrap().get(&point).copied().unwrap_or_default()
    }

    pub(crate) fn lose_notifications(&self, percent: u32) {
        self.lost_percent.store(percent, Ordering::Relaxed);
    }
}

impl Hold {
    /// Waits until the gateway is at the fail point, runs `work`, then releases the gateway.
    pub(crate) async fn meanwhile<T>(self, work: impl Future<Output = T>) -> T {
        tokio::time::timeout(std::time::Duration::from_secs(20), self.reached).await.unwrap().unwrap();
        let done = work.await;
        let _ = self.release.send(());
        done
    }
}

impl FaultInjector for FaultScript {
    fn pause(&self, point: FailPoint) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        *self.arrivals.lock().unwrap().entry(point).or_default() += 1;
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

    fn fails(&self, point: FailPoint) -> bool {
        self.fault(point) == Fault::Refused
            || point == FailPoint::Notify
                && rand::random_range(0..100) < self.lost_percent.load(Ordering::Relaxed)
    }
}
