//! The format of an answer, by content negotiation (RFC 9110, section 12.5.1).

use http::HeaderMap;

use crate::http::media_type::{essence, parameter, ranges, weight};
use crate::telemetry::exposition::Format;

const PROTOBUF: &str = "application/vnd.google.protobuf";
/// The message, and how messages follow each other.
const PARAMETERS: [(&str, &str); 2] =
    [("proto", "io.prometheus.client.MetricFamily"), ("encoding", "delimited")];
const TEXT: &str = "text/plain";

/// The protobuf format for a scraper that names it and does not prefer the text format; the text format for all others.
pub(super) fn negotiate(headers: &HeaderMap) -> Format {
    let named = |range: &&str| essence(range).eq_ignore_ascii_case(PROTOBUF) && has_parameters(range);
    let text = |range: &&str| essence(range).eq_ignore_ascii_case(TEXT);
    let protobuf = ranges(headers).filter(named).map(weight).fold(0.0, f32::max);
    let text = ranges(headers).filter(text).map(weight).fold(0.0, f32::max);
    if protobuf > 0.0 && protobuf >= text { Format::Protobuf } else { Format::Text }
}

fn has_parameters(range: &str) -> bool {
    PARAMETERS.iter().all(|(name, value)| {
        parameter(range, name).is_some_and(|given| given.trim_matches('"').eq_ignore_ascii_case(value))
    })
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;
    use http::{HeaderMap, HeaderValue};

    use super::negotiate;
    use crate::telemetry::exposition::Format;

    const FAMILY: &str =
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

    fn accepting(accept: &str) -> HeaderMap {
        [(ACCEPT, HeaderValue::from_str(accept).unwrap())].into_iter().collect()
    }

    #[test]
    fn protobuf_is_sent_to_scrapers_that_name_it() {
        // Of Prometheus 2.42 with native histograms, of Prometheus 3, and others.
        let all = "application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let newer = "q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let quoted = FAMILY.replace("delimited", "\"delimited\"").to_uppercase();
        for accept in [
            FAMILY,
            &format!("{FAMILY},{all}"),
            &format!("{FAMILY};{newer}"),
            &format!("text/plain, {quoted}"),
        ] {
            assert_eq!(negotiate(&accepting(accept)), Format::Protobuf, "{accept}");
        }
    }

    #[test]
    fn text_is_sent_to_all_others() {
        for accept in [
            "",
            "*/*",
            "application/*",
            "text/plain",
            "text/html",
            "application/vnd.google.protobuf",
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            &FAMILY.replace("delimited", "text"),
            &FAMILY.replace("MetricFamily", "Metric"),
            &format!("{FAMILY};q=0"),
            &format!("{FAMILY};q=0.3, text/plain;version=0.0.4;q=0.7"),
        ] {
            assert_eq!(negotiate(&accepting(accept)), Format::Text, "{accept}");
        }
        assert_eq!(negotiate(&HeaderMap::new()), Format::Text);
    }
}
