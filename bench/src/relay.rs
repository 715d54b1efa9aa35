//! The latency from a write at one gateway to the event at another one on the same database.

use std::time::Instant;

use tokio::time::{Duration, sleep};

use crate::cases::Era;
use crate::error::Error;
use crate::histogram::Histogram;
use crate::process::Process;
use crate::run::to_f64;
use crate::stream_client::StreamClient;
use crate::streams::Source;
use crate::subscribers::Subscribers;
use crate::trigger::Trigger;
use crate::writes::WriteLoad;

/// Changes per round, one after another, in each era.
pub(crate) const CHANGES: u32 = 400;
/// Writers of other agents, during the second half of a round.
pub(crate) const OTHER_WRITERS: usize = 20;
const FIRST_CHANGES: u32 = 20;
/// Longer than any round; the other writers are stopped when it ends.
const WRITE_DURATION: Duration = Duration::from_mins(10);
/// The delay before the other writers count as busy.
const RAMP_UP: Duration = Duration::from_millis(500);

/// The time from the answer of a write until a stream of the other gateway received the event.
pub(crate) struct Relayed {
    pub(crate) era: Era,
    pub(crate) alone: Histogram,
    /// With other writers.
    pub(crate) under_load: Histogram,
}

impl Relayed {
    pub(crate) fn new(era: Era) -> Self {
        Self { era, alone: Histogram::new(), under_load: Histogram::new() }
    }
}

/// Two gateways on one database, and the other writers.
pub(crate) struct Pair<'a> {
    source: &'a Source<'a>,
    other: &'a Process,
    load: WriteLoad,
    agents: Vec<String>,
}

impl<'a> Pair<'a> {
    /// Creates the agents of the other writers.
    pub(crate) async fn new(source: &'a Source<'a>, other: &'a Process) -> Result<Self, Error> {
        let agents: Vec<_> = (0..OTHER_WRITERS).map(|number| format!("bench-under_load-{number}")).collect();
        let load = WriteLoad::register_fixture(source.waggle, agents.clone()).await?;
        Ok(Self { source, other, load, agents })
    }

    /// Measures one round; returns the writes per second of the other writers.
    pub(crate) async fn round(&self, relayed: &mut Relayed) -> Result<f64, Error> {
        let client = StreamClient {
            server: "waggle",
            port: self.other.port,
            key: self.source.key.clone(),
            era: Some(relayed.era),
        };
        let mut subscribers = Subscribers::open(&client, 1).await?;
        let port = self.source.waggle.process.port;
        let mut trigger = Trigger::open("waggle", port, Some(self.source.authorization.clone())).await?;
        changes(&mut trigger, &mut subscribers, FIRST_CHANGES, &mut Histogram::new()).await?;
        changes(&mut trigger, &mut subscribers, CHANGES, &mut relayed.alone).await?;
        let (begin, written) = (Instant::now(), self.load.written());
        tokio::select! {
            ended = self.load.write_each(&self.agents, WRITE_DURATION) => {
                ended?;
                Err(Error::NothingMeasured { seconds: WRITE_DURATION.as_secs() })
            }
            measured = async {
                sleep(RAMP_UP).await;
                changes(&mut trigger, &mut subscribers, CHANGES, &mut relayed.under_load).await
            } => {
                measured?;
                Ok(to_f64(self.load.written() - written) / begin.elapsed().as_secs_f64())
            }
        }
    }
}

async fn changes(
    trigger: &mut Trigger,
    subscribers: &mut Subscribers,
    count: u32,
    histogram: &mut Histogram,
) -> Result<(), Error> {
    for _ in 0..count {
        let ((_, answered), received) = tokio::try_join!(trigger.fire(), subscribers.all_received())?;
        // An event that arrived before the answer counts as zero.
        for received in received {
            histogram.record(received.saturating_duration_since(answered));
        }
    }
    Ok(())
}
