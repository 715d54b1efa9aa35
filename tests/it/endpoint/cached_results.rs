//! Cached results: a change invalidates its own result only.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{ConnectOptions, Connection, Executor};
use tokio::time::timeout;

use super::{MODERN, call_as};
use crate::support::answers::exact;
use crate::support::app::Builder;
use crate::support::cluster::database;

fn manifest(changed: &str) -> Value {
    let resources: Vec<_> = (0..10_000)
        .map(|n| {
            let text = match n {
                2 => "never read",
                5_000 => changed,
                _ => "as it was",
            };
            json!({"uri": format!("x:{n:05}"), "name": "n", "contents": [{"text": text}]})
        })
        .collect();
    let template = json!({"uriTemplate": "t:{a}", "name": "n", "template": "<{{ a }}>"});
    let content = json!({"type": "text", "text": "Hello {{ a }}"});
    let prompt = json!({
        "name": "p", "arguments": [{"name": "a"}], "messages": [{"role": "user", "content": content}],
    });
    json!({"apiVersion": "waggle/v1", "resources": resources, "templates": [template], "prompts": [prompt]})
}

#[tokio::test(flavor = "multi_thread")]
async fn changing_one_resource_keeps_cached_results_of_others() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    let apply = async |changed: &str| {
        let began = std::time::Instant::now();
        let applied = replica.admin("PUT", "/agents/a/manifest", Some(manifest(changed))).await.json();
        println!("10,000 resources applied in {:?}", began.elapsed());
        let count = |verb: &str| applied[verb]["count"].as_u64().unwrap();
        (
            count("created"),
            count("updated"),
            applied["unchanged"].as_u64().unwrap(),
            applied["revision"].as_i64(),
        )
    };
    assert_eq!(apply("as it was").await, (10_002, 0, 0, Some(2)));
    assert_eq!(apply("as it was").await, (0, 0, 10_002, Some(2)), "the revision is kept too");
    let registered = [
        ("resources/read", json!({"uri": "x:00001"})),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
    ];
    let rendered = [
        ("resources/read", json!({"uri": "t:b"})),
        ("prompts/get", json!({"name": "p", "arguments": {"a": "b"}})),
    ];
    let answer_to = async |(method, params): &(&'static str, Value), revision| {
        exact(&call_as(&replica, &key, revision, method, params.clone()).await)
    };
    // Rendered results are cached on the second request.
    for call in &rendered {
        answer_to(call, None).await;
        answer_to(call, Some(MODERN)).await;
    }
    let kept = [&registered[..], &rendered[..]].concat();
    let mut before = Vec::new();
    for call in &kept {
        before.push((answer_to(call, None).await, answer_to(call, Some(MODERN)).await));
    }
    assert_eq!(apply("changed").await, (0, 1, 10_001, Some(3)));
    let changed = ("resources/read", json!({"uri": "x:05000"}));
    assert_eq!(answer_to(&changed, None).await["body"]["result"]["contents"][0]["text"], "changed");

    // From here on contents cannot be read.
    let mut locker = database.options.connect().await.unwrap();
    let mut locked = locker.begin().await.unwrap();
    locked.execute("lock table contents in access exclusive mode").await.unwrap();
    let hits = async || replica.metric("waggle_results_total{outcome=\"hit\"}").await;
    let hits_before = hits().await;
    for (call, (legacy, modern)) in kept.iter().zip(before) {
        assert_eq!(answer_to(call, None).await, legacy);
        assert_eq!(answer_to(call, Some(MODERN)).await, modern);
    }
    // Answers that were encoded again, from contents in memory, would be misses.
    assert_eq!(hits().await - hits_before, 2.0 * kept.len() as f64);
    let never_read = ("resources/read", json!({"uri": "x:00002"}));
    let waited = timeout(Duration::from_millis(300), answer_to(&never_read, None)).await;
    assert!(waited.is_err(), "an uncached read waits for the lock");
    locked.rollback().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_result_answers_only_for_the_definition_that_made_it() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let plain = replica.acme("a").await;
    let finance = replica.admin("POST", "/agents/a/keys", Some(json!({"labels": ["finance"]}))).await.json();
    let finance = finance["key"].as_str().unwrap().to_owned();
    let texts = async || {
        let mut texts = Vec::new();
        for (key, revision) in [(&plain, None), (&plain, Some(MODERN)), (&finance, Some(MODERN))] {
            let mut answers = Vec::new();
            // Rendered results are cached on the second request.
            for _ in 0..3 {
                let answer = call_as(&replica, key, revision, "resources/read", json!({"uri": "x:1"})).await;
                let body: Value = answer.json();
                let text = &body["result"]["contents"][0]["text"];
                answers.push(text.as_str().map_or_else(|| body["error"]["code"].to_string(), str::to_owned));
            }
            answers.dedup();
            texts.push(answers.join(", then "));
        }
        texts.dedup();
        texts.join("; ")
    };
    // All at one revision.
    let definitions = |labels: Value| {
        json!({
            "apiVersion": "waggle/v1",
            "resources": [{"uri": "x:1", "name": "n", "labels": labels, "contents": [{"text": "registered"}]}],
            "templates": [
                {"uriTemplate": "x:{a}", "name": "n", "template": "narrow"},
                {"uriTemplate": "x:{+a}", "name": "n", "template": "wide"},
            ],
        })
    };
    let apply = async |manifest: Value| {
        let answer = replica.admin("PUT", "/agents/a/manifest", Some(manifest)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    apply(definitions(json!([]))).await;
    assert_eq!(texts().await, "registered");
    // Each deletion leaves the others at the revision at which all were made.
    assert_eq!(replica.admin("DELETE", "/agents/a/resources?uri=x:1", None).await.status, 204);
    assert_eq!(texts().await, "narrow");
    let narrow = "/agents/a/templates?uriTemplate=x:%7Ba%7D";
    assert_eq!(replica.admin("DELETE", narrow, None).await.status, 204);
    assert_eq!(texts().await, "wide");
    // What has labels answers some callers only, and all again without them.
    apply(definitions(json!(["finance"]))).await;
    assert_eq!(texts().await, "narrow; registered");
    apply(definitions(json!([]))).await;
    assert_eq!(texts().await, "registered");
}
