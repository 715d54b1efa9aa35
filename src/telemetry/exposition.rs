//! The formats of `/metrics`: metric families, each with its type, help and samples, as text or as protobuf messages.

mod protobuf;
mod text;
mod value;

use super::histogram::DurationCounts;
pub(crate) use value::{Kind, Value};

/// A format that Prometheus scrapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// The text format, version 0.0.4, with classic histograms.
    Text,
    /// Messages `io.prometheus.client.MetricFamily`, each after its length, with classic and native histograms.
    Protobuf,
}

impl Format {
    /// The media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => text::CONTENT_TYPE,
            Self::Protobuf => protobuf::CONTENT_TYPE,
        }
    }
}

/// Writes metric families.
#[derive(Debug)]
pub(crate) enum Exposition {
    /// As text.
    Text(String),
    /// As protobuf messages.
    Protobuf(protobuf::Families),
}

/// One family, to which samples are added.
pub(crate) enum Family<'a> {
    /// As text.
    Text(text::Family<'a>),
    /// As a protobuf message.
    Protobuf(protobuf::Family<'a>),
}

impl Exposition {
    /// Without families.
    pub(crate) fn new(format: Format) -> Self {
        match format {
            Format::Text => Self::Text(String::new()),
            Format::Protobuf => Self::Protobuf(protobuf::Families::default()),
        }
    }

    /// Starts a family. Neither its name nor its help text needs escaping.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> Family<'_> {
        match self {
            Self::Text(text) => Family::Text(text::Family::new(text, (name, help), kind)),
            Self::Protobuf(families) => Family::Protobuf(families.family((name, help), kind)),
        }
    }

    /// A family of one counter.
    pub(crate) fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.family(name, Kind::Counter, help).sample(&[], value);
    }

    /// A family of one gauge.
    pub(crate) fn gauge(&mut self, name: &'static str, help: &'static str, value: impl Into<Value>) {
        self.family(name, Kind::Gauge, help).sample(&[], value);
    }

    /// The body of the answer.
    pub(crate) fn finish(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Protobuf(families) => families.finish(),
        }
    }
}

impl Family<'_> {
    /// Adds the samples of a histogram of durations.
    pub(crate) fn durations(&mut self, labels: &[(&str, &str)], counts: &DurationCounts) {
        match self {
            Self::Text(family) => family.durations(labels, counts),
            Self::Protobuf(family) => family.durations(labels, counts),
        }
    }

    /// Adds a sample. Label values are constants of the gateway, never text from a client, and need no escaping.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<Value>) {
        match self {
            Self::Text(family) => family.sample("", labels, value.into()),
            Self::Protobuf(family) => family.sample(labels, value.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Exposition, Format, Kind};
    use crate::telemetry::histogram::DurationHistogram;

    #[test]
    fn families_of_text_have_a_type_and_samples() {
        let mut text = Exposition::new(Format::Text);
        let mut family = text.family("a_total", Kind::Counter, "What a is.");
        family.sample(&[("b", "c"), ("d", "e/f")], 7_u64);
        family.sample(&[("b", "g")], 8_u64);
        text.gauge("h_seconds", "What h is.", 0.5);
        text.gauge("j_seconds", "What j is.", f64::INFINITY);
        let histogram = DurationHistogram::default();
        histogram.count(Duration::from_micros(40));
        histogram.count(Duration::from_secs(40));
        text.family("i_seconds", Kind::Histogram, "What i is.").durations(&[("b", "c")], &histogram.counts());
        let expected = "\
# HELP a_total What a is.
# TYPE a_total counter
a_total{b=\"c\",d=\"e/f\"} 7
a_total{b=\"g\"} 8
# HELP h_seconds What h is.
# TYPE h_seconds gauge
h_seconds 0.5
# HELP j_seconds What j is.
# TYPE j_seconds gauge
j_seconds +Inf
# HELP i_seconds What i is.
# TYPE i_seconds histogram
i_seconds_bucket{b=\"c\",le=\"0.00005\"} 1
i_seconds_bucket{b=\"c\",le=\"0.0001\"} 1
i_seconds_bucket{b=\"c\",le=\"0.00025\"} 1
i_seconds_bucket{b=\"c\",le=\"0.0005\"} 1
i_seconds_bucket{b=\"c\",le=\"0.001\"} 1
i_seconds_bucket{b=\"c\",le=\"0.0025\"} 1
i_seconds_bucket{b=\"c\",le=\"0.005\"} 1
i_seconds_bucket{b=\"c\",le=\"0.01\"} 1
i_seconds_bucket{b=\"c\",le=\"0.025\"} 1
i_seconds_bucket{b=\"c\",le=\"0.05\"} 1
i_seconds_bucket{b=\"c\",le=\"0.1\"} 1
i_seconds_bucket{b=\"c\",le=\"0.25\"} 1
i_seconds_bucket{b=\"c\",le=\"1\"} 1
i_seconds_bucket{b=\"c\",le=\"5\"} 1
i_seconds_bucket{b=\"c\",le=\"30\"} 1
i_seconds_bucket{b=\"c\",le=\"+Inf\"} 2
i_seconds_sum{b=\"c\"} 40.00004
i_seconds_count{b=\"c\"} 2
";
        assert_eq!(String::from_utf8(text.finish()).unwrap(), expected);
    }
}
