//! Open streams: how soon another gateway tells of a write, how soon thousands are told, and what each costs.

use std::path::Path;

use crate::cases::Era;
use crate::error::Error;
use crate::fan_out::{self, Kind, Sample};
use crate::fixture::WATCHED;
use crate::options::{Options, Server};
use crate::relay::{Pair, Relayed};
use crate::waggle::Waggle;

/// How many streams are open at once.
const SIZES: [usize; 2] = [500, 5000];
/// The SDK is measured with the fewest alone.
const SIZE_OF_RMCP: usize = SIZES[0];
/// Descriptors that a server or this program needs besides those of its streams.
const BESIDES: usize = 200;

/// What was measured.
#[derive(Default)]
pub(crate) struct Streams {
    /// Between two gateways, era by era; nothing where the gateway is not measured.
    pub(crate) relayed: Vec<Relayed>,
    /// Writes a second of those who wrote beside.
    pub(crate) others: Vec<f64>,
    /// At one server, a sample a round.
    pub(crate) fan_outs: Vec<(Kind, Vec<Sample>)>,
    /// What the limit on open files left out.
    pub(crate) left_out: Vec<usize>,
    /// That limit.
    pub(crate) descriptors: u64,
}

/// The gateway whose database all others share, and what opens its doors.
pub(crate) struct Source<'a> {
    pub(crate) waggle: &'a Waggle,
    /// Of the watched agent.
    pub(crate) key: String,
    /// The header of an operator.
    pub(crate) authorization: String,
}

/// Measures with as many open files as `descriptors`, on a gateway that does nothing else meanwhile.
pub(crate) async fn measure(
    waggle: Option<&Waggle>,
    options: &Options,
    dir: &Path,
    descriptors: u64,
) -> Result<Streams, Error> {
    let source = match waggle {
        Some(waggle) => Some(Source::furnish(waggle).await?),
        None => None,
    };
    let fits = |streams: usize| (streams + BESIDES) as u64 <= descriptors;
    let mut streams = Streams {
        fan_outs: kinds(options).filter(|kind| fits(kind.streams)).map(|kind| (kind, Vec::new())).collect(),
        left_out: SIZES.into_iter().filter(|streams| !fits(*streams)).collect(),
        descriptors,
        ..Streams::default()
    };
    if let Some(source) = &source {
        streams.relay(source, options, dir).await?;
    }
    for _ in 0..options.rounds {
        for (kind, samples) in &mut streams.fan_outs {
            samples.push(fan_out::measure(*kind, source.as_ref(), options, dir).await?);
        }
    }
    Ok(streams)
}

impl Streams {
    async fn relay(&mut self, source: &Source<'_>, options: &Options, dir: &Path) -> Result<(), Error> {
        let other = source.waggle.replica(&options.waggle_binary()?, dir).await?;
        let pair = Pair::new(source, &other).await?;
        self.relayed = [Era::Modern, Era::Legacy].map(Relayed::new).into();
        for _ in 0..options.rounds {
            for relayed in &mut self.relayed {
                self.others.push(pair.round(relayed).await?);
            }
        }
        other.stop().await;
        Ok(())
    }
}

impl<'a> Source<'a> {
    async fn furnish(waggle: &'a Waggle) -> Result<Self, Error> {
        let mut admin = waggle.admin().await?;
        let key = admin.register(WATCHED).await?;
        Ok(Self { waggle, key, authorization: admin.authorization })
    }
}

/// Everything to measure, in the order of the report.
fn kinds(options: &Options) -> impl Iterator<Item = Kind> {
    let eras = |server| match server {
        Server::Limit => &[None][..],
        Server::Rmcp => &[Some(Era::Legacy)],
        // A stream has one row at its end, whatever is told on it.
        Server::Unaudited => &[],
        Server::Waggle => &[Some(Era::Modern), Some(Era::Legacy)],
    };
    SIZES.into_iter().flat_map(move |streams| {
        let servers =
            options.servers().filter(move |server| *server != Server::Rmcp || streams == SIZE_OF_RMCP);
        servers
            .flat_map(move |server| eras(server).iter().map(move |era| Kind { server, era: *era, streams }))
    })
}
