//! Open streams: the latency between replicas, the time until thousands have received a change, and the cost of each.

use std::path::Path;

use crate::cases::Era;
use crate::error::Error;
use crate::fan_out::{self, FanOutCase, Sample};
use crate::fixture::WATCHED;
use crate::options::{Options, Server};
use crate::relay::{Pair, Relayed};
use crate::waggle::Waggle;

/// How many streams are open at once.
const SIZES: [usize; 2] = [500, 5000];
/// The SDK is measured with the smallest number only.
const SIZE_OF_RMCP: usize = SIZES[0];
/// Descriptors that a server or this program needs in addition to those of its streams.
const RESERVED_DESCRIPTORS: usize = 200;

/// The results.
#[derive(Default)]
pub(crate) struct Streams {
    /// Between two gateways, by era; empty if the gateway is not measured.
    pub(crate) relayed: Vec<Relayed>,
    /// Writes per second of the other writers, by round.
    pub(crate) others: Vec<f64>,
    /// At one server, a sample per round.
    pub(crate) fan_outs: Vec<(FanOutCase, Vec<Sample>)>,
    /// The numbers of streams that exceed the limit on open files.
    pub(crate) left_out: Vec<usize>,
    /// The limit on open files.
    pub(crate) descriptors: u64,
}

/// The gateway whose database all others share, and what is needed to open streams there.
pub(crate) struct Source<'a> {
    pub(crate) waggle: &'a Waggle,
    /// The key of the watched agent.
    pub(crate) key: String,
    /// The operator's `Authorization` header.
    pub(crate) authorization: String,
}

/// Measures with at most `descriptors` open files. The gateway must be otherwise idle.
pub(crate) async fn measure(
    waggle: Option<&Waggle>,
    options: &Options,
    dir: &Path,
    descriptors: u64,
) -> Result<Streams, Error> {
    let source = match waggle {
        Some(waggle) => Some(Source::register_fixture(waggle).await?),
        None => None,
    };
    let fits = |streams: usize| (streams + RESERVED_DESCRIPTORS) as u64 <= descriptors;
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
    async fn register_fixture(waggle: &'a Waggle) -> Result<Self, Error> {
        let mut admin = waggle.admin().await?;
        let key = admin.register(WATCHED).await?;
        Ok(Self { waggle, key, authorization: admin.authorization })
    }
}

/// Everything to measure, in the order of the report.
fn kinds(options: &Options) -> impl Iterator<Item = FanOutCase> {
    // The era, and whether there is another replica.
    let variants = |server| match server {
        Server::Limit => &[(None, false)][..],
        Server::Rmcp => &[(Some(Era::Legacy), false)],
        // A stream has one audit row at its end, however many events it had.
        Server::Unaudited => &[],
        Server::Waggle => &[
            (Some(Era::Modern), false),
            (Some(Era::Legacy), false),
            (Some(Era::Modern), true),
            (Some(Era::Legacy), true),
        ],
    };
    SIZES.into_iter().flat_map(move |streams| {
        let servers =
            options.servers().filter(move |server| *server != Server::Rmcp || streams == SIZE_OF_RMCP);
        servers.flat_map(move |server| {
            variants(server).iter().map(move |(era, replicated)| FanOutCase {
                server,
                era: *era,
                streams,
                replicated: *replicated,
            })
        })
    })
}
