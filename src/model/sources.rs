//! What the world gives: time, randomness and, under test, interference. All passed in, never reached for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{SeedableRng, TryRng};
use time::OffsetDateTime;
use uuid::Uuid;

use super::clock::{ClockSample, DatabaseClock};

/// Tells the time of day.
pub trait Clock: Send + Sync {
    /// Now, in UTC and as exactly as the database keeps it: in whole microseconds.
    fn now(&self) -> OffsetDateTime;

    /// Takes in a reading of the database's clock. A clock that does not follow the database ignores it.
    fn adjust(&self, _sample: ClockSample) {}

    /// What following the database has added to the local clock.
    fn offset(&self) -> time::Duration {
        time::Duration::ZERO
    }

    /// Whether the local clock differs from the database's by a minute or more, as last measured.
    fn is_skewed(&self) -> bool {
        false
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc().truncate_to_microsecond()
    }
}

/// Gives unpredictable bytes.
pub trait Random: Send + Sync {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// When the machine's source of randomness fails.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError>;
}

/// The machine's source of randomness failed; nothing secret can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the machine's source of randomness failed")]
pub struct RandomError;

/// The machine's source of randomness.
#[derive(Debug, Clone, Copy)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError> {
        rand::rngs::SysRng.try_fill_bytes(bytes).map_err(|_| RandomError)
    }
}

/// The points at which a test may hold the gateway, or make it lose something. Production has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    /// A cache has read a scope's rows and has not kept them yet.
    CacheFillRead,
    /// A snapshot has read its definitions and not yet their contents.
    SnapshotBetweenReads,
    /// A credential was read and has not been kept yet.
    CredentialFillRead,
    /// A session was read and has not been kept yet.
    SessionFillRead,
    /// A write has done everything but commit.
    BeforeCommit,
    /// A write has committed, and nothing is published of it yet.
    AfterCommit,
    /// A wake is about to be sent.
    Wake,
    /// A sweep is about to ask the database.
    Sweep,
    /// Something that is not in memory is about to be loaded.
    Load,
    /// It is known that an agent with streams changed; the changes are not read yet.
    BeforeStreamsRead,
    /// Changes of an agent with streams were read, and everybody has heard of them; the streams are not told yet.
    BeforeTold,
    /// A stream is about to take up an interest.
    BeforeInterest,
    /// It was read what of an agent's changes is retained; they are not read yet.
    DuringReplay,
}

/// Something that interferes at a [`Point`].
pub trait Interfere: Send + Sync {
    /// Returns when the gateway may go on.
    fn pause(&self, point: Point) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Whether what is about to happen at `point` is lost instead.
    fn loses(&self, point: Point) -> bool;
}

/// Time, randomness and interference, handed to whoever needs them.
#[derive(Clone)]
pub struct Sources {
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Unpredictable bytes.
    pub random: Arc<dyn Random>,
    /// Who interferes; nobody in production.
    pub interference: Option<Arc<dyn Interfere>>,
}

impl Sources {
    /// The machine's own; its clock follows the database's.
    pub fn system() -> Self {
        Self {
            clock: Arc::new(DatabaseClock::new(SystemClock)),
            random: Arc::new(SystemRandom),
            interference: None,
        }
    }

    /// A new uid, ordered by time (`UUIDv7`).
    ///
    /// # Errors
    /// When the source of randomness fails.
    pub fn uid(&self) -> Result<Uuid, RandomError> {
        let mut bytes = [0; 10];
        self.random.fill(&mut bytes)?;
        let millis = self.clock.now().unix_timestamp_nanos() / 1_000_000;
        let millis = u64::try_from(millis).unwrap_or_default();
        Ok(uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid())
    }

    /// A cryptographically secure generator, seeded with 256 unpredictable bits.
    ///
    /// # Errors
    /// When the source of randomness fails.
    pub fn csprng(&self) -> Result<StdRng, RandomError> {
        let mut seed = [0; 32];
        self.random.fill(&mut seed)?;
        Ok(StdRng::from_seed(seed))
    }

    /// Waits where a test wants to hold the gateway.
    pub async fn pause(&self, point: Point) {
        if let Some(interference) = &self.interference {
            interference.pause(point).await;
        }
    }

    /// Whether what is about to happen at `point` is lost.
    pub fn loses(&self, point: Point) -> bool {
        self.interference.as_ref().is_some_and(|i| i.loses(point))
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}
