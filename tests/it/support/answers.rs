//! Complete answers as comparable values: what differs between runs is validated and replaced by a name.

use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use waggle::model::key::SecretKey;

use super::http::Answer;

/// Like [`exact`], with names in place of values that differ between runs.
pub(crate) fn normalized(answer: &Answer) -> Value {
    let mut whole = exact(answer);
    whole["body"] = named(whole["body"].take());
    whole
}

/// Like [`normalized`], without the rate limit headers.
pub(crate) fn without_rates(answer: &Answer) -> Value {
    let mut whole = normalized(answer);
    let headers = whole["headers"].as_object_mut().unwrap();
    headers.retain(|name, _| !name.starts_with("ratelimit"));
    whole
}

/// The status, headers and body of an answer, except for the headers of date, length and request id.
pub(crate) fn exact(answer: &Answer) -> Value {
    let skipped = ["date", "content-length", "x-request-id"];
    let headers: Map<_, _> = answer
        .headers
        .iter()
        .filter(|(name, _)| !skipped.contains(&name.as_str()))
        .map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap())))
        .collect();
    json!({"status": answer.status.as_u16(), "headers": headers, "body": body(answer)})
}

fn body(answer: &Answer) -> Value {
    let is_json = answer.header("content-type").is_some_and(|essence| essence.ends_with("json"));
    match answer.text() {
        empty if empty.is_empty() => Value::Null,
        text if is_json => serde_json::from_str(&text).unwrap(),
        text => Value::from(text),
    }
}

/// Replaces ids, times, secrets and cursors by names.
fn named(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(named).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name.clone(), name_of(&name, value))).collect()
        }
        other => other,
    }
}

fn name_of(member: &str, value: Value) -> Value {
    let text = value.as_str().unwrap_or_default();
    match member {
        "id" if text.parse::<uuid::Uuid>().is_ok() => json!("<id>"),
        "uuid" if text.parse::<uuid::Uuid>().is_ok() => json!("<uuid>"),
        "key" if SecretKey::parse(text).is_ok() => json!("<secret>"),
        "display" if text.len() == 12 => json!("<display>"),
        "createdAt" | "revokedAt" | "lastModified" if OffsetDateTime::parse(text, &Rfc3339).is_ok() => {
            json!("<moment>")
        }
        "nextCursor" if !text.is_empty() => json!("<cursor>"),
        _ => named(value),
    }
}

/// An answer of the administration API with an optional JSON body.
pub(crate) fn answered(status: u16, etag: Option<i64>, body: &Value) -> Value {
    let mut headers = Map::from_iter([("cache-control".to_owned(), json!("no-store"))]);
    if !body.is_null() {
        headers.insert("content-type".to_owned(), json!("application/json"));
    }
    if let Some(revision) = etag {
        headers.insert("etag".to_owned(), json!(format!("\"{revision}\"")));
    }
    json!({"status": status, "headers": headers, "body": body})
}

/// A problem of the administration API.
pub(crate) fn problem(status: u16, code: &str, detail: &str) -> Value {
    let title = StatusCode::from_u16(status).unwrap().canonical_reason();
    let mut headers = json!({"cache-control": "no-store", "content-type": "application/problem+json"});
    if status == 401 {
        headers["www-authenticate"] = json!("Bearer realm=\"MCP\"");
    }
    let body =
        json!({"type": "about:blank", "title": title, "status": status, "detail": detail, "code": code});
    json!({"status": status, "headers": headers, "body": body})
}

/// The answer to a method that a path does not have. It names the methods of the path; on the administration API only
/// in the header.
pub(crate) fn method_not_allowed(allowed: &str, is_admin: bool) -> Value {
    let detail = if is_admin {
        "this path does not have that method; the header Allow names those that it has".to_owned()
    } else {
        format!("this path does not have that method; use one of {allowed}")
    };
    let mut answer = problem(405, "method_not_allowed", &detail);
    answer["headers"]["allow"] = json!(allowed);
    if !is_admin {
        answer["headers"].as_object_mut().unwrap().remove("cache-control");
    }
    answer
}

/// An error of an MCP endpoint, by its HTTP status, code, name and message. `id` is JSON, or empty if the member is
/// absent.
pub(crate) fn error(status: u16, id: &str, code: i32, name: &str, message: &str) -> Value {
    let error = json!({"code": code, "message": message, "data": {"code": name}});
    let mut body = json!({"jsonrpc": "2.0", "error": error});
    if !id.is_empty() {
        body["id"] = serde_json::from_str(id).unwrap();
    }
    let mut headers = json!({"content-type": "application/json"});
    if status == 401 {
        headers["www-authenticate"] = json!("Bearer realm=\"MCP\"");
    }
    json!({"status": status, "headers": headers, "body": body})
}

/// A message of an MCP endpoint.
pub(crate) fn message(body: &Value) -> Value {
    json!({"status": 200, "headers": {"content-type": "application/json"}, "body": body})
}

/// Sends raw bytes and reads until the server closes the connection or sends nothing for ten seconds.
pub(crate) async fn raw(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may close before all is sent.
    let _ = stream.write_all(bytes).await;
    let mut received = Vec::new();
    let reading = stream.read_to_end(&mut received);
    let _ = tokio::time::timeout(Duration::from_secs(10), reading).await;
    let text = String::from_utf8(received).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.parse::<http::HeaderName>().unwrap(), value.parse::<http::HeaderValue>().unwrap())
    };
    let mut headers: http::HeaderMap = lines.map(header).collect();
    headers.remove("connection");
    Answer { status, headers, body: body.to_owned().into() }
}
