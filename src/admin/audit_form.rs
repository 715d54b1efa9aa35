//! The formats of the audit log as a stream: NDJSON or CSV.

use http::HeaderMap;
use serde_json::Value;

use crate::http::media_type;
use crate::model::audit::row::AuditRow;

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuditFormat {
    /// One JSON object per line.
    Lines,
    /// RFC 4180, with a header line.
    Csv,
}

/// The columns of the CSV, in the order in which they are hashed, and `connection`, which is hashed with the subject.
const COLUMNS: [&str; 30] = [
    "version",
    "chain",
    "seq",
    "previous",
    "at",
    "requestId",
    "traceId",
    "tenantId",
    "agentId",
    "agent",
    "principalId",
    "principal",
    "keyId",
    "client",
    "clientName",
    "clientVersion",
    "protocolVersion",
    "sessionId",
    "method",
    "subject",
    "outcome",
    "status",
    "micros",
    "bytesIn",
    "bytesOut",
    "revision",
    "before",
    "after",
    "connection",
    "hash",
];

impl AuditFormat {
    /// The format that `Accept` names and prefers, the first of several with the same weight; `None` for a page.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let (mut preferred, mut most) = (None, 0.0);
        for range in media_type::ranges(headers) {
            let form = match media_type::essence(range).to_ascii_lowercase().as_str() {
                "application/x-ndjson" => Some(Self::Lines),
                "text/csv" => Some(Self::Csv),
                "application/json" => None,
                _ => continue,
            };
            let weight = media_type::weight(range);
            // A stream goes before a page of the same weight: clients that name it also accept the default.
            if weight > most || (weight >= most && preferred.is_none() && weight > 0.0) {
                (preferred, most) = (form, weight);
            }
        }
        preferred
    }

    pub(super) fn mime_type(self) -> &'static str {
        match self {
            Self::Lines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }

    /// The header, before the first row.
    pub(super) fn head(self) -> Vec<u8> {
        match self {
            Self::Lines => Vec::new(),
            Self::Csv => (COLUMNS.join(",") + "\r\n").into_bytes(),
        }
    }

    /// Appends a row.
    pub(super) fn write(self, out: &mut Vec<u8>, row: &AuditRow) {
        // A row consists of plain values, which always serialize.
        let Ok(value) = serde_json::to_value(row) else { return };
        match self {
            Self::Lines => {
                out.extend_from_slice(value.to_string().as_bytes());
                out.push(b'\n');
            }
            Self::Csv => {
                for (index, column) in COLUMNS.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    cell(out, &value[column]);
                }
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

fn cell(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => {}
        Value::String(text) if text.contains([',', '"', '\r', '\n']) => {
            out.push(b'"');
            out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
            out.push(b'"');
        }
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        other => out.extend_from_slice(other.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;
    use http::{HeaderMap, HeaderValue};
    use serde_json::json;

    use super::{AuditFormat, cell};

    #[test]
    fn a_cell_is_quoted_where_it_must_be() {
        let written = |value| {
            let mut out = Vec::new();
            cell(&mut out, &value);
            String::from_utf8(out).unwrap()
        };
        let cells = [json!(null), json!(7), json!("plain"), json!("a,b"), json!("say \"a\"")].map(written);
        assert_eq!(cells, ["", "7", "plain", "\"a,b\"", "\"say \"\"a\"\"\""]);
    }

    #[test]
    fn a_stream_is_sent_on_request() {
        let form = |lines: &[&'static str]| {
            let line = |line: &&'static str| (ACCEPT, HeaderValue::from_static(line));
            let mut headers = HeaderMap::new();
            headers.extend(lines.iter().map(line));
            AuditFormat::of(&headers)
        };
        assert_eq!(form(&[]), None);
        for (accept, expected) in [
            ("application/x-ndjson", Some(AuditFormat::Lines)),
            ("Text/CSV; header=present", Some(AuditFormat::Csv)),
            ("application/json, text/csv", Some(AuditFormat::Csv)),
            ("text/csv, application/json", Some(AuditFormat::Csv)),
            ("text/csv, application/x-ndjson", Some(AuditFormat::Csv)),
            ("text/csv;q=0.5, application/x-ndjson;q=0.9", Some(AuditFormat::Lines)),
            ("text/csv;q=0.9, application/json", None),
            ("application/json, application/x-ndjson;q=0.1", None),
            ("text/csv;q=0", None),
            ("application/json;q=0, text/csv;q=0", None),
            ("application/json", None),
            ("*/*", None),
        ] {
            assert_eq!(form(&[accept]), expected, "{accept}");
        }
        assert_eq!(form(&["application/json", "application/x-ndjson"]), Some(AuditFormat::Lines));
    }
}
