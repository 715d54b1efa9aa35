//! From a write at one gateway to the event at another on the same database.

use std::time::Instant;

use tokio::time::{Duration, sleep};

use crate::cases::Era;
use crate::crowd::Crowd;
use crate::door::Door;
use crate::error::Error;
use crate::histogram::Histogram;
use crate::process::Process;
use crate::run::to_f64;
use crate::streams::Source;
use crate::trigger::Trigger;
use crate::writes::Site;

/// Changes a round, one after another, in each era.
pub(crate) const CHANGES: u32 = 400;
/// Writers of other agents, beside whom the changes are made as well.
pub(crate) const OTHERS: usize = 20;
const FIRST_CHANGES: u32 = 20;
/// The others write for longer than any round lasts, and are stopped with it.
const LONG: Duration = Duration::from_mins(10);
/// Before the others are taken to be at work.
const GATHERING: Duration = Duration::from_millis(500);

/// From the answer of a write until a stream of the other gateway told of it.
pub(crate) struct Relayed {
    pub(crate) era: Era,
    pub(crate) alone: Histogram,
    /// Beside the others.
    pub(crate) beside: Histogram,
}

impl Relayed {
    pub(crate) fn new(era: Era) -> Self {
        Self { era, alone: Histogram::new(), beside: Histogram::new() }
    }
}

/// Two gateways on one database, and those who write beside.
pub(crate) struct Pair<'a> {
    source: &'a Source<'a>,
    other: &'a Process,
    site: Site,
    agents: Vec<String>,
}

impl<'a> Pair<'a> {
    /// Creates the agents of the other writers.
    pub(crate) async fn new(source: &'a Source<'a>, other: &'a Process) -> Result<Self, Error> {
        let agents: Vec<_> = (0..OTHERS).map(|number| format!("bench-beside-{number}")).collect();
        let site = Site::furnish(source.waggle, agents.clone()).await?;
        Ok(Self { source, other, site, agents })
    }

    /// Measures one round; answers how many writes a second the others made.
    pub(crate) async fn round(&self, relayed: &mut Relayed) -> Result<f64, Error> {
        let door = Door {
            server: "waggle",
            port: self.other.port,
            key: self.source.key.clone(),
            era: Some(relayed.era),
        };
        let mut crowd = Crowd::open(&door, 1).await?;
        let port = self.source.waggle.process.port;
        let mut trigger = Trigger::open("waggle", port, Some(self.source.authorization.clone())).await?;
        changes(&mut trigger, &mut crowd, FIRST_CHANGES, &mut Histogram::new()).await?;
        changes(&mut trigger, &mut crowd, CHANGES, &mut relayed.alone).await?;
        let (begin, written) = (Instant::now(), self.site.written());
        tokio::select! {
            ended = self.site.write_each(&self.agents, LONG) => {
                ended?;
                Err(Error::NothingMeasured { seconds: LONG.as_secs() })
            }
            measured = async {
                sleep(GATHERING).await;
                changes(&mut trigger, &mut crowd, CHANGES, &mut relayed.beside).await
            } => {
                measured?;
                Ok(to_f64(self.site.written() - written) / begin.elapsed().as_secs_f64())
            }
        }
    }
}

async fn changes(
    trigger: &mut Trigger,
    crowd: &mut Crowd,
    count: u32,
    histogram: &mut Histogram,
) -> Result<(), Error> {
    for _ in 0..count {
        let ((_, answered), told) = tokio::try_join!(trigger.pull(), crowd.all_told())?;
        // Told before the answer was read: it was no time at all.
        for told in told {
            histogram.record(told.saturating_duration_since(answered));
        }
    }
    Ok(())
}
