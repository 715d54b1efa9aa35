//! How many events of the audit log wait in memory, and how long, while reads arrive at a fixed rate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::cases::read;
use crate::error::Error;
use crate::metrics;
use crate::open_loop::Schedule;
use crate::population::Group;
use crate::run::to_f64;
use crate::svg::{Axis, Chart, Line, Scale};

/// How often the metrics are read: no multiple of the time that events wait for each other.
const INTERVAL: Duration = Duration::from_millis(23);
/// The age that unwritten events may have, in milliseconds.
const MAX_MS: f64 = 50.0;
const MIB: f64 = 1_048_576.0;

/// The results of one rate.
pub(crate) struct Lag {
    rate: u32,
    per_second: f64,
    failed: u64,
    p99_micros: u64,
    samples: Vec<Sample>,
    /// Of the time meanwhile.
    counters: Counters,
}

/// Counters of the gateway.
#[derive(Clone, Copy)]
struct Counters {
    /// Events lost.
    lost: u64,
    /// Writes of events.
    writes: u64,
    /// Those that took at most 25 ms: the bound of the histogram that is next to what [`MAX_MS`] presupposes.
    fast: u64,
}

impl Counters {
    async fn read(port: u16) -> Result<Self, Error> {
        let text = metrics::scrape(port).await?;
        let value = |name| metrics::sum(&text, name);
        Ok(Self {
            lost: value("waggle_audit_lost_total "),
            writes: value("waggle_audit_write_seconds_count "),
            fast: value("waggle_audit_write_seconds_bucket{le=\"0.025\"} "),
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            lost: self.lost.saturating_sub(before.lost),
            writes: self.writes.saturating_sub(before.writes),
            fast: self.fast.saturating_sub(before.fast),
        }
    }

    fn slow(self) -> u64 {
        self.writes.saturating_sub(self.fast)
    }
}

/// The metrics at one time.
struct Sample {
    seconds: f64,
    waiting: f64,
    oldest_ms: f64,
    spilled: f64,
}

impl Lag {
    /// Sends reads of all keys in turn at `rate` for `duration`.
    pub(crate) async fn measure(
        port: u16,
        group: &Group,
        rate: u32,
        duration: Duration,
    ) -> Result<Self, Error> {
        let before = Counters::read(port).await?;
        let stop = AtomicBool::new(false);
        let schedule = Schedule { ports: &[port], per_second: rate, polled: true };
        let load = schedule.send(&stop, |number, port| {
            let key = usize::try_from(number).unwrap_or_default() % group.keys;
            read(&group.agent(key), "x:1", port, &group.key(key))
        });
        let samples = async {
            let samples = sample(port, duration).await;
            stop.store(true, Ordering::Relaxed);
            samples
        };
        let (samples, results) = tokio::try_join!(samples, load)?;
        let latencies = results.latencies();
        Ok(Self {
            rate,
            per_second: to_f64(latencies.len()) / duration.as_secs_f64(),
            failed: results.failed(),
            p99_micros: latencies.quantile(990),
            samples,
            counters: Counters::read(port).await?.since(before),
        })
    }

    /// Fails if events were lost, or waited for longer than they may.
    ///
    /// # Errors
    /// In these cases.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let oldest = self.quantile(990, |sample| sample.oldest_ms);
        if self.counters.lost > 0 {
            return Err(Error::EventsLost(self.counters.lost));
        }
        if oldest > MAX_MS { Err(Error::EventsLate(oldest, MAX_MS)) } else { Ok(()) }
    }

    /// The value that `per_mille` of a thousand samples do not exceed.
    fn quantile(&self, per_mille: usize, value: fn(&Sample) -> f64) -> f64 {
        let mut values: Vec<f64> = self.samples.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let at = (values.len() * per_mille).div_ceil(1000).max(1) - 1;
        values.get(at).copied().unwrap_or_default()
    }
}

async fn sample(port: u16, duration: Duration) -> Result<Vec<Sample>, Error> {
    let began = Instant::now();
    let mut samples = Vec::new();
    while began.elapsed() < duration {
        let text = metrics::scrape(port).await?;
        let value = |name| metrics::sum::<f64>(&text, name);
        samples.push(Sample {
            seconds: began.elapsed().as_secs_f64(),
            waiting: value("waggle_audit_waiting "),
            oldest_ms: value("waggle_audit_oldest_seconds ") * 1e3,
            spilled: value("waggle_audit_spilled_bytes "),
        });
        sleep(INTERVAL).await;
    }
    Ok(samples)
}

/// The rates as a table.
pub(crate) fn table(lags: &[Lag]) -> String {
    let row = |lag: &Lag| {
        let [waiting, oldest]: [fn(&Sample) -> f64; 2] = [|sample| sample.waiting, |sample| sample.oldest_ms];
        format!(
            "| {} | {:.0} | {} | {:.1} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {} of {} | {} |\n",
            lag.rate,
            lag.per_second,
            lag.failed,
            to_f64(lag.p99_micros) / 1e3,
            lag.quantile(500, waiting),
            lag.quantile(1000, waiting),
            lag.quantile(500, oldest),
            lag.quantile(990, oldest),
            lag.quantile(1000, oldest),
            lag.quantile(1000, |sample| sample.spilled) / MIB,
            lag.counters.slow(),
            lag.counters.writes,
            lag.counters.lost,
        )
    };
    let rows: String = lags.iter().map(row).collect();
    format!(
        "| reads/s wanted | answered | failed | read p99 ms | unwritten events: p50 | most | oldest ms: p50 | p99 | most \
         | spill file MiB | writes above 25 ms | lost |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n{rows}"
    )
}

/// How long the oldest unwritten event had waited, over time.
pub(crate) fn chart(lags: &[Lag]) -> Chart {
    let line = |lag: &Lag| Line {
        name: format!("{} reads/s", lag.rate),
        points: lag.samples.iter().map(|sample| (sample.seconds, sample.oldest_ms)).collect(),
    };
    Chart {
        title: "Age of the oldest unwritten event",
        x: Axis { label: "seconds", scale: Scale::Linear },
        y: Axis { label: "ms", scale: Scale::Linear },
        lines: lags.iter().map(line).collect(),
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lag(samples: Vec<Sample>, lost: u64) -> Lag {
        let counters = Counters { lost, writes: 0, fast: 0 };
        Lag { rate: 1, per_second: 0.0, failed: 0, p99_micros: 0, samples, counters }
    }

    #[test]
    fn lost_and_late_events_are_failures() {
        let aged = |oldest_ms| Sample { seconds: 0.0, waiting: 1.0, oldest_ms, spilled: 0.0 };
        let samples = |late| (0..100).map(|nth| aged(if nth < late { 50.1 } else { 50.0 })).collect();
        assert!(lag(samples(1), 0).check().is_ok());
        assert!(matches!(lag(samples(2), 0).check(), Err(Error::EventsLate(..))));
        assert!(matches!(lag(samples(0), 3).check(), Err(Error::EventsLost(3))));
    }

    #[test]
    fn quantiles_of_samples_are_exact() {
        let sample = |waiting| Sample { seconds: 0.0, waiting, oldest_ms: 0.0, spilled: 0.0 };
        let lag = lag((1..=200).rev().map(f64::from).map(sample).collect(), 0);
        let quantiles =
            [500, 990, 1000].map(|per_mille| format!("{}", lag.quantile(per_mille, |it| it.waiting)));
        assert_eq!(quantiles, ["100", "198", "200"]);
    }
}
