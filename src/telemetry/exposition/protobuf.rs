//! The protobuf format of Prometheus: messages `io.prometheus.client.MetricFamily`, each after its length as a varint.
//!
//! The text format has no native histograms. Here a histogram has both its classic buckets and its native ones, and the
//! scraper stores those that it is configured for.

use prost::Message;

use super::value::{Kind, Value};
use crate::telemetry::histogram::{self, BOUNDS, DurationCounts, SCHEMA, ZERO_THRESHOLD, seconds};

/// The media type.
pub(super) const CONTENT_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Encoded families, and the one that samples are added to.
#[derive(Debug, Default)]
pub(crate) struct Families {
    encoded: Vec<u8>,
    open: MetricFamily,
}

/// The family that samples are added to.
pub(crate) struct Family<'a>(&'a mut MetricFamily);

impl Families {
    pub(super) fn family(&mut self, (name, help): (&str, &str), kind: Kind) -> Family<'_> {
        self.close();
        let r#type = match kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let (name, help) = (name.to_owned(), help.to_owned());
        self.open = MetricFamily { name, help, r#type: r#type.into(), metric: Vec::new() };
        Family(&mut self.open)
    }

    /// Encodes the open family. One without samples is left out, as by all clients of Prometheus.
    fn close(&mut self) {
        if !self.open.metric.is_empty() {
            self.encoded.extend(self.open.encode_length_delimited_to_vec());
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.close();
        self.encoded
    }
}

impl Family<'_> {
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: Value) {
        let value = value.to_f64();
        let metric = if self.0.r#type() == MetricType::Counter {
            Metric { counter: Some(Counter { value }), ..Metric::default() }
        } else {
            Metric { gauge: Some(Gauge { value }), ..Metric::default() }
        };
        self.add(labels, metric);
    }

    pub(super) fn durations(&mut self, labels: &[(&str, &str)], counts: &DurationCounts) {
        self.add(labels, Metric { histogram: Some(Histogram::from(counts)), ..Metric::default() });
    }

    fn add(&mut self, labels: &[(&str, &str)], metric: Metric) {
        let label =
            |(name, value): &(&str, &str)| LabelPair { name: (*name).to_owned(), value: (*value).to_owned() };
        self.0.metric.push(Metric { label: labels.iter().map(label).collect(), ..metric });
    }
}

impl From<&DurationCounts> for Histogram {
    fn from(counts: &DurationCounts) -> Self {
        // Not the sum of the classic buckets: a duration is counted in its native bucket first, and scrapers require that
        // the count is the sum of these.
        let total = counts.native.total();
        let bucket = |(bound, within): (&u64, u64)| Bucket {
            cumulative_count: within.min(total),
            upper_bound: seconds(*bound),
        };
        let spans = counts.native.spans();
        let mut before = 0;
        let mut delta =
            |count: &u64| count.cast_signed() - std::mem::replace(&mut before, count.cast_signed());
        Self {
            sample_count: total,
            sample_sum: seconds(counts.micros),
            bucket: BOUNDS.iter().zip(counts.within).map(bucket).collect(),
            schema: SCHEMA,
            // Also tells scrapers that the histogram is a native one, while it is empty.
            zero_threshold: ZERO_THRESHOLD,
            zero_count: counts.native.zero(),
            positive_delta: spans.iter().flat_map(|span| &span.counts).map(&mut delta).collect(),
            positive_span: spans.iter().map(BucketSpan::from).collect(),
        }
    }
}

impl From<&histogram::BucketSpan> for BucketSpan {
    fn from(span: &histogram::BucketSpan) -> Self {
        let length = u32::try_from(span.counts.len()).unwrap_or(u32::MAX);
        Self { offset: span.offset, length }
    }
}

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(enumeration = "MetricType", tag = "3")]
    r#type: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Counter>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Gauge {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Counter {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    sample_count: u64,
    #[prost(double, tag = "2")]
    sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    /// The count of each bucket, less that of the bucket before.
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    cumulative_count: u64,
    #[prost(double, tag = "2")]
    upper_bound: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct BucketSpan {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prost::Message;

    use super::{Bucket, BucketSpan, Families, Gauge, Kind, MetricFamily, MetricType, Value};
    use crate::telemetry::histogram::{BOUNDS, DurationHistogram};

    fn decode(mut bytes: &[u8]) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        while !bytes.is_empty() {
            families.push(MetricFamily::decode_length_delimited(&mut bytes).unwrap());
        }
        families
    }

    #[test]
    fn histogram_has_what_was_counted_in_both_forms() {
        let histogram = DurationHistogram::default();
        // Two in the zero bucket, then in buckets -80 (at its bound of 2⁻¹⁰ s), -79, -77 and 0.
        for nanos in [0, 900, 976_562, 976_563, 976_563, 1_266_000, 1_000_000_000] {
            histogram.count(Duration::from_nanos(nanos));
        }
        let mut out = Families::default();
        out.family(("a", "What a is."), Kind::Gauge).sample(&[], Value::Real(f64::INFINITY));
        out.family(("b_total", "Without samples."), Kind::Counter);
        out.family(("c_seconds", "What c is."), Kind::Histogram)
            .durations(&[("d", "e")], &histogram.counts());
        let families = decode(&out.finish());
        let [gauge, family] = families.as_slice() else { panic!("{families:?}") };
        assert_eq!((gauge.name.as_str(), gauge.r#type()), ("a", MetricType::Gauge));
        assert_eq!(gauge.metric[0].gauge, Some(Gauge { value: f64::INFINITY }));
        assert_eq!((family.help.as_str(), family.r#type()), ("What c is.", MetricType::Histogram));
        let [metric] = family.metric.as_slice() else { panic!("{family:?}") };
        assert_eq!((metric.label[0].name.as_str(), metric.label[0].value.as_str()), ("d", "e"));
        let histogram = metric.histogram.as_ref().unwrap();
        assert_eq!((histogram.sample_count, histogram.sample_sum), (7, 1.004_194));
        assert_eq!(
            (histogram.schema, histogram.zero_threshold, histogram.zero_count),
            (3, 2_f64.powi(-20), 2)
        );
        assert_eq!(
            histogram.positive_span,
            [BucketSpan { offset: -80, length: 4 }, BucketSpan { offset: 76, length: 1 }]
        );
        // 1, 2, 0, 1 and 1.
        assert_eq!(histogram.positive_delta, [1, 1, -2, 1, 0]);
        let within = [2, 2, 2, 2, 5, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7];
        let bounds = BOUNDS.map(|micros| Duration::from_micros(micros).as_secs_f64());
        let expected = within.into_iter().zip(bounds);
        let expected =
            expected.map(|(cumulative_count, upper_bound)| Bucket { cumulative_count, upper_bound });
        assert_eq!(histogram.bucket, expected.collect::<Vec<_>>());
    }
}
