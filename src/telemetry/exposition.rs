//! The Prometheus text format, version 0.0.4: metric families, each with its type, help and samples.

use std::fmt::{Display, Write};
use std::time::Duration;

use super::histogram::{BOUNDS, DurationCounts};

/// The media type.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric family.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Only increases.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by upper bounds.
    Histogram,
}

/// Writes metric families.
#[derive(Debug, Default)]
pub(crate) struct Exposition(String);

/// One family, to which samples are added.
pub(crate) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Exposition {
    /// Starts a family. Neither its name nor its help text needs escaping.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string does not fail.
        _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family { text: &mut self.0, name }
    }

    /// A family of one counter.
    pub(crate) fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.family(name, Kind::Counter, help).sample("", &[], value);
    }

    /// A family of one gauge.
    pub(crate) fn gauge(&mut self, name: &'static str, help: &'static str, value: impl Display) {
        self.family(name, Kind::Gauge, help).sample("", &[], value);
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// Adds the samples of a histogram of durations.
    pub(crate) fn durations(&mut self, labels: &[(&str, &str)], counts: &DurationCounts) {
        let bucket = |family: &mut Self, bound: &str, count: u64| {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
            family.sample("_bucket", &labels, count);
        };
        for (bound, count) in BOUNDS.iter().zip(counts.within) {
            bucket(self, &seconds(*bound).to_string(), count);
        }
        bucket(self, "+Inf", counts.count);
        self.sample("_sum", labels, seconds(counts.micros));
        self.sample("_count", labels, counts.count);
    }

    /// Adds a sample, with a suffix of the family's name. Label values are constants of the gateway, never text from a
    /// client, and need no escaping.
    pub(crate) fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        _ = write!(self.text, "{}{suffix}", self.name);
        for (nth, (label, word)) in labels.iter().enumerate() {
            _ = write!(self.text, "{}{label}=\"{word}\"", if nth == 0 { '{' } else { ',' });
        }
        _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::{Exposition, Kind};

    #[test]
    fn families_have_a_type_and_samples() {
        let mut text = Exposition::default();
        let mut family = text.family("a_total", Kind::Counter, "What a is.");
        family.sample("", &[("b", "c"), ("d", "e/f")], 7);
        family.sample("", &[("b", "g")], 8);
        text.gauge("h_seconds", "What h is.", 0.5);
        text.family("i", Kind::Histogram, "What i is.").sample("_bucket", &[("le", "+Inf")], 9);
        let expected = "\
# HELP a_total What a is.
# TYPE a_total counter
a_total{b=\"c\",d=\"e/f\"} 7
a_total{b=\"g\"} 8
# HELP h_seconds What h is.
# TYPE h_seconds gauge
h_seconds 0.5
# HELP i What i is.
# TYPE i histogram
i_bucket{le=\"+Inf\"} 9
";
        assert_eq!(text.finish(), expected);
    }
}
