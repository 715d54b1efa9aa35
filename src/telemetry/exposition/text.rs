//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

use super::value::{Kind, Value};
use crate::telemetry::histogram::{BOUNDS, DurationCounts, seconds};

/// The media type.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A family that is written to a text.
pub(crate) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl<'a> Family<'a> {
    pub(super) fn new(text: &'a mut String, (name, help): (&'static str, &str), kind: Kind) -> Self {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string does not fail.
        _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Self { text, name }
    }

    pub(super) fn durations(&mut self, labels: &[(&str, &str)], counts: &DurationCounts) {
        let bucket = |family: &mut Self, bound: &str, count: u64| {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound)]).collect();
            family.sample("_bucket", &labels, count);
        };
        for (bound, count) in BOUNDS.iter().zip(counts.within) {
            bucket(self, &seconds(*bound).to_string(), count);
        }
        bucket(self, "+Inf", counts.count);
        self.sample("_sum", labels, Value::Real(seconds(counts.micros)));
        self.sample("_count", labels, counts.count);
    }

    /// Adds a sample, with a suffix of the family's name.
    pub(super) fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        _ = write!(self.text, "{}{suffix}", self.name);
        for (nth, (label, word)) in labels.iter().enumerate() {
            _ = write!(self.text, "{}{label}=\"{word}\"", if nth == 0 { '{' } else { ',' });
        }
        _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}
