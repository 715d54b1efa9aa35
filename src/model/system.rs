//! Time, randomness and, under test, fault injection. All are passed in, never global.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{SeedableRng, TryRng};
use uuid::Uuid;

use super::clock::DatabaseClock;
use super::fault::Fault;

pub use super::clock::{Clock, SystemClock};

/// A source of random bytes.
pub trait Random: Send + Sync {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// If the system's random source fails.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError>;

    /// A duration from `least` to `most`, evenly distributed; the middle if the source fails.
    fn duration(&self, least: Duration, most: Duration) -> Duration {
        let mut bytes = [0; 4];
        let part = match self.fill(&mut bytes) {
            Ok(()) => f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX),
            Err(RandomError) => 0.5,
        };
        least + most.saturating_sub(least).mul_f64(part)
    }

    /// A delay varied by up to half, so that replicas and clients that fail together do not retry together.
    fn jitter(&self, delay: Duration) -> Duration {
        self.duration(delay / 2, delay.saturating_mul(3) / 2)
    }
}

/// The system's random source failed, so that no secret can be generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system's random source failed")]
pub struct RandomError;

/// The system's random source.
#[derive(Debug, Clone, Copy)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError> {
        rand::rngs::SysRng.try_fill_bytes(bytes).map_err(|_| RandomError)
    }
}

/// A point at which a test may pause the gateway or make an action of it fail. Production injects nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailPoint {
    /// A cache has read a scope's rows and has not stored them yet.
    CacheFillRead,
    /// A snapshot of an agent is taken, and only a part of it is read.
    SnapshotBetweenReads,
    /// A credential was read and is not cached yet.
    CredentialFillRead,
    /// A session was read and is not cached yet.
    SessionFillRead,
    /// A write is complete except for its commit.
    BeforeCommit,
    /// A write has committed, and nothing is published yet.
    AfterCommit,
    /// A `NOTIFY` is about to be sent.
    Notify,
    /// A sweep is about to query the database.
    Sweep,
    /// A batch of the revisions in memory is about to be compared with the database.
    Comparison,
    /// Something that is not in memory is about to be loaded.
    Load,
    /// An agent with streams is known to have changed; the changes are not read yet.
    BeforeStreamsRead,
    /// The changes of an agent with streams were read and all replicas have acknowledged them; the streams have not
    /// received them yet.
    BeforeDelivery,
    /// A stream is about to subscribe.
    BeforeSubscription,
    /// The range of an agent's retained changes was read; the changes are not read yet.
    DuringReplay,
}

/// Pauses the gateway, or makes an action fail, at a [`FailPoint`].
pub trait FaultInjector: Send + Sync {
    /// Returns when the gateway may continue.
    fn pause(&self, point: FailPoint) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Whether the action at `point` fails, or what it sends is lost.
    fn fails(&self, point: FailPoint) -> bool;
}

/// Time, randomness and fault injection.
#[derive(Clone)]
pub struct System {
    /// The current time.
    pub clock: Arc<dyn Clock>,
    /// Random bytes.
    pub random: Arc<dyn Random>,
    /// Injects faults under test; `None` in production.
    pub fault_injector: Option<Arc<dyn FaultInjector>>,
}

impl System {
    /// The clock and the random source of the operating system, without faults; the clock is corrected to that of the database.
    pub fn real() -> Self {
        Self {
            clock: Arc::new(DatabaseClock::new(SystemClock)),
            random: Arc::new(SystemRandom),
            fault_injector: None,
        }
    }

    /// Generates a UUID that is ordered by time (`UUIDv7`).
    ///
    /// # Errors
    /// If the random source fails.
    pub fn uid(&self) -> Result<Uuid, RandomError> {
        let mut bytes = [0; 10];
        self.random.fill(&mut bytes)?;
        let millis = self.clock.now().unix_timestamp_nanos() / 1_000_000;
        let millis = u64::try_from(millis).unwrap_or_default();
        Ok(uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid())
    }

    /// A cryptographically secure generator, seeded with 256 random bits.
    ///
    /// # Errors
    /// If the random source fails.
    pub fn csprng(&self) -> Result<StdRng, RandomError> {
        let mut seed = [0; 32];
        self.random.fill(&mut seed)?;
        Ok(StdRng::from_seed(seed))
    }

    /// Waits while a test pauses the gateway at `point`.
    pub async fn pause(&self, point: FailPoint) {
        if let Some(injector) = &self.fault_injector {
            injector.pause(point).await;
        }
    }

    /// Whether a test makes the action at `point` fail.
    pub fn fails(&self, point: FailPoint) -> bool {
        self.fault_injector.as_ref().is_some_and(|injector| injector.fails(point))
    }
}

impl From<RandomError> for Fault {
    fn from(error: RandomError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Random, RandomError};

    /// The same byte each time; `None` fails.
    struct Fixed(Option<u8>);

    impl Random for Fixed {
        fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError> {
            bytes.fill(self.0.ok_or(RandomError)?);
            Ok(())
        }
    }

    #[test]
    fn delays_vary_by_up_to_half() {
        let jitter = |byte| Fixed(byte).jitter(Duration::from_secs(4)).as_secs();
        assert_eq!([Some(0), Some(255), None].map(jitter), [2, 6, 4]);
    }
}
