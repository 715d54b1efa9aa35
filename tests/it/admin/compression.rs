//! Compressed responses of the administration API.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::json;

use super::send;
use crate::support::app::{Replica, gateway, resource};
use crate::support::http::Answer;

/// A resource whose definition is larger than the minimum size of a compressed response.
async fn large(replica: &Replica) -> String {
    replica.acme("a").await;
    let path = resource("a", "x:1");
    let body = json!({"name": "n", "description": "word ".repeat(1_000), "contents": [{"text": "t"}]});
    assert_eq!(replica.admin("PUT", &path, Some(body)).await.status, 201);
    path
}

async fn get(replica: &Replica, path: &str, headers: &[(&str, &str)]) -> Answer {
    send(replica, &replica.operator, ("GET", path), headers, "").await
}

fn decoded(answer: &Answer) -> Vec<u8> {
    let mut decoded = Vec::new();
    match answer.header("content-encoding") {
        Some("gzip") => GzDecoder::new(&answer.body[..]).read_to_end(&mut decoded).unwrap(),
        Some("br") => {
            brotli_decompressor::Decompressor::new(&answer.body[..], 4_096).read_to_end(&mut decoded).unwrap()
        }
        other => panic!("{other:?}"),
    };
    decoded
}

#[tokio::test]
async fn large_reads_are_compressed_as_the_client_accepts() {
    let (_database, replica) = gateway().await;
    let path = large(&replica).await;
    let plain = get(&replica, &path, &[]).await;
    let tags = |answer: &Answer| {
        (answer.header("etag").map(str::to_owned), answer.header("vary").map(str::to_owned))
    };
    let vary = Some("accept-encoding".to_owned());
    assert_eq!(
        (plain.header("content-encoding"), tags(&plain)),
        (None, (Some("\"2\"".into()), vary.clone()))
    );
    for (accepted, coding) in
        [("gzip", "gzip"), ("br", "br"), ("gzip, deflate, br", "br"), ("br;q=0, gzip", "gzip")]
    {
        let answer = get(&replica, &path, &[("accept-encoding", accepted)]).await;
        assert_eq!(answer.header("content-encoding"), Some(coding), "{accepted}");
        assert_eq!(tags(&answer), (Some(format!("\"2-{coding}\"")), vary.clone()), "{accepted}");
        assert_eq!(answer.header("content-length"), None);
        assert!(answer.body.len() * 4 < plain.body.len(), "{accepted}: {} bytes", answer.body.len());
        assert_eq!(decoded(&answer), plain.body, "{accepted}");
    }
    for accepted in ["identity", "deflate", "zstd", "gzip;q=0"] {
        let answer = get(&replica, &path, &[("accept-encoding", accepted)]).await;
        assert_eq!((answer.header("content-encoding"), &answer.body), (None, &plain.body), "{accepted}");
        assert_eq!(tags(&answer), tags(&plain), "{accepted}");
    }
}

#[tokio::test]
async fn tags_of_compressed_responses_are_preconditions() {
    let (_database, replica) = gateway().await;
    let path = large(&replica).await;
    let gzip = ("accept-encoding", "gzip");
    for (known, tag) in
        [("\"2-gzip\"", "\"2-gzip\""), ("\"2-br\"", "\"2-br\""), ("\"2\"", "\"2\""), ("*", "\"2\"")]
    {
        let answer = get(&replica, &path, &[gzip, ("if-none-match", known)]).await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (304, 0), "{known}");
        assert_eq!((answer.header("etag"), answer.header("content-encoding")), (Some(tag), None), "{known}");
    }
    // `304` has the `Vary` of the `200` (RFC 9110, section 15.4.5).
    replica.put("a", "x:2", "t").await;
    for (path, vary) in [(path.as_str(), Some("accept-encoding")), (&resource("a", "x:2"), None)] {
        for known in ["\"1\"", "*"] {
            let answer = get(&replica, path, &[gzip, ("if-none-match", known)]).await;
            assert_eq!(answer.header("vary"), vary, "{path} {known}: {}", answer.status);
        }
        let origin = ("origin", "http://localhost:3000");
        let answer = get(&replica, path, &[gzip, origin, ("if-none-match", "*")]).await;
        let sent: Vec<_> = answer.headers.get_all("vary").iter().map(|vary| vary.to_str().unwrap()).collect();
        assert_eq!(sent, [vary.as_slice(), &["Origin"]].concat(), "{path}");
    }
    for other in ["\"1-gzip\"", "\"2-zip\"", "\"gzip\""] {
        assert_eq!(get(&replica, &path, &[gzip, ("if-none-match", other)]).await.status, 200, "{other}");
    }
    let put = async |tag| {
        let headers = [("content-type", "application/json"), ("if-match", tag)];
        let call = ("PUT", path.as_str());
        send(&replica, &replica.operator, call, &headers, r#"{"name":"m","contents":[]}"#)
            .await
            .status
            .as_u16()
    };
    assert_eq!((put("\"1-gzip\"").await, put("\"2-gzip\"").await, put("\"2-gzip\"").await), (412, 200, 412));
}

#[tokio::test]
async fn small_responses_writes_and_other_surfaces_are_not_compressed() {
    let (_database, replica) = gateway().await;
    let path = large(&replica).await;
    let gzip = ("accept-encoding", "gzip");
    let text = json!({"name": "n", "description": "word ".repeat(2_000), "contents": []}).to_string();
    let headers = [("content-type", "application/json"), gzip];
    let written = send(&replica, &replica.operator, ("PUT", &path), &headers, text).await;
    assert_eq!((written.status.as_u16(), written.header("content-encoding")), (200, None));
    assert_eq!(written.header("etag"), Some("\"3\""));
    for path in ["/tenants/acme", "/nothing"] {
        let answer = get(&replica, path, &[gzip]).await;
        assert_eq!((answer.header("content-encoding"), answer.header("vary")), (None, None), "{path}");
    }
    let (_, key) = replica.key("a", &["mcp"]).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {}});
    let headers = [("x-agent-api-key", key.as_str()), ("content-type", "application/json"), gzip];
    let answer = replica.http.send("POST", "/a/mcp", &headers, list.to_string()).await;
    assert!(answer.body.len() > 4_000 && answer.json()["result"].is_object(), "{}", answer.text());
    assert_eq!((answer.header("content-encoding"), answer.header("vary")), (None, None));
}
