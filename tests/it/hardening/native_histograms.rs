//! `/metrics` as protobuf: the same metrics as in the text, and native histograms beside the classic ones.

use crate::support::app::gateway;
use crate::support::metric_families::{Histogram, LabelPair, MetricFamily, MetricType, scrape};
use crate::support::metrics::sample;

/// Durations are rounded down to whole microseconds for the classic buckets, and not for the native ones.
const MICROSECOND: f64 = 1e-6;

fn family<'f>(families: &'f [MetricFamily], name: &str) -> &'f MetricFamily {
    families.iter().find(|family| family.name() == name).unwrap_or_else(|| panic!("no {name}"))
}

/// The classic buckets contain at least the native buckets below their bound, and at most those that begin below it.
fn agrees_with_classic(histogram: &Histogram) {
    let native = histogram.native();
    assert_eq!(
        native.iter().map(|(.., count)| count).sum::<u64>(),
        histogram.sample_count(),
        "{histogram:?}"
    );
    for bucket in &histogram.bucket {
        let (bound, within) = (bucket.upper_bound(), bucket.cumulative_count());
        let sum = |includes: &dyn Fn(f64, f64) -> bool| -> u64 {
            native.iter().filter(|(lower, upper, _)| includes(*lower, *upper)).map(|(.., count)| count).sum()
        };
        let least = sum(&|_, upper| upper <= bound);
        let most = sum(&|lower, _| lower < bound + MICROSECOND);
        assert!((least..=most).contains(&within), "{bound}: {least} <= {within} <= {most}: {histogram:?}");
    }
    let sum = histogram.sample_sum();
    let (least, most) = native.iter().fold((0.0, 0.0), |(least, most), (lower, upper, count)| {
        let count = f64::from(u32::try_from(*count).unwrap());
        (least + (lower - MICROSECOND) * count, most + upper * count)
    });
    assert!((least..=most).contains(&sum), "{least} <= {sum} <= {most}: {histogram:?}");
}

#[tokio::test]
async fn protobuf_has_classic_and_native_histograms() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "text").await;
    for _ in 0..20 {
        assert!(replica.http.text("a", &key, "x:1").await.is_some());
    }
    let (answer, families) = scrape(&replica.http).await;
    let protobuf =
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, Some(protobuf)));
    let durations = family(&families, "waggle_request_duration_seconds");
    assert_eq!(durations.r#type(), MetricType::Histogram);
    let reads = durations.metric.iter().find(|metric| metric.label[0].value() == "resources/read").unwrap();
    let reads = reads.histogram.as_ref().unwrap();
    assert_eq!((reads.sample_count(), reads.schema(), reads.zero_threshold()), (20, 3, 2_f64.powi(-20)));
    for metric in &durations.metric {
        agrees_with_classic(metric.histogram.as_ref().unwrap());
    }
    // Empty, and recognizable as a native one.
    let lag = family(&families, "waggle_event_lag_seconds").metric[0].histogram.clone().unwrap();
    assert_eq!((lag.sample_count(), lag.native()), (0, vec![(0.0, 2_f64.powi(-20), 0)]));
    assert!(lag.zero_threshold() > 0.0);

    let text = replica.http.get("/metrics").await.text();
    let labels = "{method=\"resources/read\"";
    let value = |name: &str| sample(&text, name).unwrap().parse::<f64>().unwrap();
    assert_eq!(value(&format!("waggle_request_duration_seconds_count{labels}}}")), 20.0);
    assert_eq!(value(&format!("waggle_request_duration_seconds_sum{labels}}}")), reads.sample_sum());
    for bucket in &reads.bucket {
        let name =
            format!("waggle_request_duration_seconds_bucket{labels},le=\"{}\"}}", bucket.upper_bound());
        assert_eq!(value(&name), f64::from(u32::try_from(bucket.cumulative_count()).unwrap()), "{name}");
    }
}

#[tokio::test]
async fn protobuf_and_text_have_the_same_samples() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "text").await;
    assert!(replica.http.text("a", &key, "x:1").await.is_some());
    replica.running.services.identity.count_expiring_keys().await;
    let (_, families) = scrape(&replica.http).await;
    let text = replica.http.get("/metrics").await.text();
    let mut samples = Vec::new();
    for family in &families {
        let kind = format!("{:?}", family.r#type()).to_lowercase();
        assert!(text.contains(&format!("# HELP {} {}\n", family.name(), family.help())), "{family:?}");
        assert!(text.contains(&format!("# TYPE {} {kind}\n", family.name())), "{family:?}");
        for metric in &family.metric {
            let labels: Vec<_> =
                metric.label.iter().map(|label| format!("{}=\"{}\"", label.name(), label.value())).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let suffix = if family.r#type() == MetricType::Histogram { "_count" } else { "" };
            let members = [metric.counter.is_some(), metric.gauge.is_some(), metric.histogram.is_some()];
            assert_eq!(members.map(usize::from).iter().sum::<usize>(), 1, "{metric:?}");
            assert_eq!(metric.counter.is_some(), family.r#type() == MetricType::Counter, "{metric:?}");
            samples.push(format!("{}{suffix}{labels}", family.name()));
        }
    }
    let is_sample = |line: &&str| !line.starts_with('#') && !line.contains("_bucket{");
    let names = text.lines().filter(is_sample).map(|line| line.rsplit_once(' ').unwrap().0.to_owned());
    let is_sum = |name: &String| name.contains("_seconds_sum");
    assert_eq!(samples, names.filter(|name| !is_sum(name)).collect::<Vec<_>>());
    let reads = family(&families, "waggle_requests_total")
        .metric
        .iter()
        .find(|metric| metric.label.iter().map(LabelPair::value).eq(["resources/read", "legacy", "ok"]));
    assert_eq!(reads.unwrap().counter.as_ref().unwrap().value(), 1.0);
}
