//! Sources that fail, and what they cost others.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::upstream::{Reply, status, text};
use super::{Site, source};
use crate::support::app::{Builder, resource};
use crate::support::cluster::database;
use crate::support::wait::eventually;

fn failed(reason: &str) -> Value {
    json!({"code": -31018, "message": format!("the source of this content failed: {reason}"),
        "data": {"code": "source_failed", "reason": reason}})
}

#[tokio::test]
async fn failures_are_answered_by_their_reason() {
    let site = Site::with_limits(json!({"timeoutMs": 300, "maxBytes": 10})).await;
    let timeout = json!({"code": -31018, "data": {"code": "source_timeout"},
        "message": "the source of this content did not answer in time; try again"});
    let gzip = vec![("content-encoding", "gzip".to_owned())];
    for (name, reply, expected) in [
        ("status", status(503), failed("status")),
        ("denied", status(403), failed("denied")),
        ("large", text("more than ten bytes"), failed("too_large")),
        ("coded", Reply::Answer(200, gzip, b"no gzip".to_vec()), failed("bad_content")),
        ("slow", Reply::Hang, timeout),
    ] {
        site.upstream.answer(name, reply);
        site.resource(name, source(name)).await;
        let uri = format!("test://{name}");
        assert_eq!(site.read(&uri).await["error"], expected, "{name}");
        assert_eq!(site.read_modern(&uri).await["error"], expected, "{name}");
    }
    let moved = json!({"settings": {"allowNetworks": []}});
    assert_eq!(site.replica.admin("PATCH", "/connections/api", Some(moved)).await.status, 200);
    assert_eq!(site.read("test://status").await["error"], failed("not_allowed"));
    let disabled = json!({"enabled": false});
    assert_eq!(site.replica.admin("PATCH", "/connections/api", Some(disabled)).await.status, 200);
    assert_eq!(site.read("test://status").await["error"], failed("not_allowed"));
}

#[tokio::test]
async fn tenant_that_loses_a_connection_reads_nothing_more_of_it() {
    let site = Site::new().await;
    site.upstream.answer("a", text("one"));
    site.resource("a", source("a")).await;
    assert_eq!(site.text("test://a").await, "one");
    let tenants = json!({"tenants": []});
    assert_eq!(site.replica.admin("PATCH", "/connections/api", Some(tenants)).await.status, 200);
    assert_eq!(site.read("test://a").await["error"], failed("not_allowed"));
}

#[tokio::test]
async fn rate_and_circuit_refuse_before_the_source_is_asked() {
    let site = Site::with_limits(json!({"perSecond": 1, "burst": 7})).await;
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 0})).await;
    site.upstream.answer("a", status(500));
    for _ in 0..5 {
        assert_eq!(site.read("test://a").await["error"], failed("status"));
    }
    assert_eq!(site.read("test://a").await["error"], failed("busy"));
    assert_eq!(site.upstream.count(), 5);
    let shown = site.replica.admin("GET", "/connections/api", None).await.json();
    assert_eq!((&shown["state"], &shown["lastError"]["reason"]), (&json!("open"), &json!("status")));
    let metric = async |name: &str| site.replica.metric(&format!("waggle_connection_{name}")).await;
    let open = "circuits_open{connection=\"api\"}";
    let failed_fetches = "fetches_total{connection=\"api\",result=\"failed\"}";
    assert!(metric(failed_fetches).await >= 5.0);
    assert_eq!((metric(open).await, metric("failing{connection=\"api\"}").await), (1.0, 1.0));
    site.upstream.answer("a", text("back"));
    eventually("the circuit closes", async || site.read("test://a").await["result"].is_object()).await;
    let shown = site.replica.admin("GET", "/connections/api", None).await.json();
    assert_eq!(shown["state"], "ready");
    assert_eq!(metric(open).await, 0.0);
    let refused = async || {
        let answers = join_all((0..4).map(|_| async { site.read("test://a").await })).await;
        answers.iter().any(|answer| answer["error"] == failed("busy"))
    };
    eventually("the rate is used up", refused).await;
}

#[tokio::test]
async fn values_that_a_source_rejects_do_not_open_the_circuit() {
    let site = Site::new().await;
    let source = json!({"connection": "api", "path": "t/{city}"});
    assert_eq!(site.template("test://t/{city}", json!({"name": "t", "source": source})).await.status, 201);
    for (number, status) in [400, 405, 414, 422, 451].repeat(2).into_iter().enumerate() {
        site.upstream.answer(&format!("t/{number}"), self::status(status));
        assert_eq!(site.read(&format!("test://t/{number}")).await["error"], failed("status"), "{status}");
    }
    site.upstream.answer("t/rome", text("24"));
    assert_eq!(site.text("test://t/rome").await, "24");
}

#[tokio::test]
async fn source_that_asks_for_a_pause_is_not_asked_meanwhile() {
    let site = Site::new().await;
    let asking = Reply::Answer(429, vec![("retry-after", "25".to_owned())], Vec::new());
    site.upstream.answer("a", asking);
    site.upstream.answer("b", text("b"));
    site.resource("a", source("a")).await;
    site.resource("b", source("b")).await;
    assert_eq!(site.read("test://a").await["error"], failed("status"));
    for uri in ["test://a", "test://b"] {
        assert_eq!(site.read(uri).await["error"], failed("busy"), "{uri}");
    }
    assert_eq!(site.upstream.count(), 1);
}

#[tokio::test]
async fn hanging_source_holds_nothing_that_others_need() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__CONCURRENT_REQUESTS", 2).start().await;
    let site = Site::over(database, replica, json!({"timeoutMs": 10_000, "concurrent": 4})).await;
    site.upstream.answer("a", Reply::Hang);
    site.resource("a", source("a")).await;
    site.replica.put("notes", "test://inline", "here").await;
    let hanging = join_all((0..8).map(|_| site.read("test://a")));
    tokio::pin!(hanging);
    let inline = async {
        eventually("the source is asked", async || site.upstream.count() > 0).await;
        let began = Instant::now();
        for _ in 0..20 {
            assert_eq!(site.text("test://inline").await, "here");
        }
        assert!(began.elapsed() < Duration::from_secs(5));
    };
    tokio::select! {
        answers = &mut hanging => panic!("{answers:?}"),
        () = inline => {}
    }
}

#[tokio::test]
async fn endless_early_hints_delay_no_other_read() {
    let site = Site::with_limits(json!({"timeoutMs": 10_000, "concurrent": 4})).await;
    let names = ["a", "b", "c", "d"];
    for name in names {
        site.upstream.answer(name, Reply::EarlyHints);
        site.resource(name, source(name)).await;
    }
    site.replica.put("notes", "test://inline", "here").await;
    let uris = names.map(|name| format!("test://{name}"));
    let endless = join_all(uris.iter().map(|uri| site.read(uri)));
    tokio::pin!(endless);
    let inline = async {
        let mut asked = 0;
        let all_asked = async || {
            asked += site.upstream.count();
            asked == names.len()
        };
        eventually("the source is asked for all", all_asked).await;
        for _ in 0..20 {
            assert_eq!(site.text("test://inline").await, "here");
        }
    };
    tokio::select! {
        answers = &mut endless => panic!("{answers:?}"),
        () = inline => {}
    }
}

#[tokio::test]
async fn bytes_come_at_the_rate_of_the_connection_and_the_tenant() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SOURCES__BYTES_PER_SECOND", 100).start().await;
    let site = Site::over(database, replica, json!({"timeoutMs": 2_000})).await;
    site.upstream.answer("large", text(&"x".repeat(60_000)));
    site.upstream.answer("small", text("small"));
    for name in ["large", "small"] {
        site.resource(name, json!({"connection": "api", "path": name, "ttlMs": 0})).await;
    }
    site.replica.tenant("bee").await;
    site.replica.agent("bee", "hive").await;
    let (_, key) = site.replica.key("hive", &["mcp"]).await;
    let body = json!({"name": "small", "source": {"connection": "api", "path": "small", "ttlMs": 0}});
    assert_eq!(site.replica.admin("PUT", &resource("hive", "test://small"), Some(body)).await.status, 201);
    site.connection("other", json!("*"), json!({})).await;
    site.resource("elsewhere", json!({"connection": "other", "path": "small", "ttlMs": 0})).await;

    assert_eq!(site.text("test://small").await, "small");
    // The first part of it takes more than a minute, and so long nothing more is received: the time limits hold.
    assert_eq!(site.read("test://large").await["error"]["data"]["code"], "source_timeout");
    assert_eq!(site.read("test://small").await["error"]["data"]["code"], "source_timeout");
    assert_eq!(site.text("test://elsewhere").await, "small");
    assert_eq!(site.replica.http.text("hive", &key, "test://small").await.as_deref(), Some("small"));
}

#[tokio::test]
async fn source_slower_than_a_request_may_be_is_a_failure_of_the_source() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SERVER__REQUEST_SECONDS", 2).start().await;
    let site = Site::over(database, replica, json!({"timeoutMs": 60_000})).await;
    site.upstream.answer("slow", Reply::Hang);
    site.resource("slow", json!({"connection": "api", "path": "slow", "ttlMs": 0})).await;
    assert_eq!(site.read("test://slow").await["error"]["data"]["code"], "source_timeout");
    let test = json!({"source": {"path": "slow"}});
    let tested = site.replica.admin("POST", "/connections/api/test", Some(test)).await;
    assert_eq!(tested.json(), json!({"ok": false, "reason": "timeout"}));
}

#[tokio::test]
async fn failures_that_anonymous_callers_cause_are_theirs_alone() {
    let site = Site::new().await;
    site.publish().await;
    let source = json!({"connection": "api", "path": "t/{city}", "ttlMs": 0});
    assert_eq!(site.template("test://t/{city}", json!({"name": "t", "source": source})).await.status, 201);
    site.upstream.answer("t/rome", text("24"));
    site.upstream.answer("t/nowhere", status(500));
    for _ in 0..5 {
        assert_eq!(site.read_anonymously("test://t/nowhere").await["error"], failed("status"));
    }
    // Each attempt that fails lengthens the pause.
    let refused = async || site.read_anonymously("test://t/rome").await["error"] == failed("busy");
    eventually("their circuit is open", async || {
        site.read_anonymously("test://t/nowhere").await["error"] == failed("busy") && refused().await
    })
    .await;
    assert_eq!(site.text("test://t/rome").await, "24");
    let shown = site.replica.admin("GET", "/connections/api", None).await.json();
    assert_eq!(shown["state"], "ready");
}

#[tokio::test]
async fn no_read_with_a_credential_waits_for_places_of_anonymous_callers() {
    let site = Site::with_limits(json!({"concurrent": 2, "timeoutMs": 120_000})).await;
    site.publish().await;
    site.upstream.answer("hanging", Reply::Hang);
    site.upstream.answer("a", text("here"));
    for name in ["hanging", "a"] {
        site.resource(name, json!({"connection": "api", "path": name, "ttlMs": 0})).await;
    }
    let fetches = async || site.replica.metric("waggle_source_fetches").await;
    let anonymous = async {
        let waiting = async {
            eventually("the source is asked", async || site.upstream.count() > 0).await;
            site.read_anonymously("test://a").await
        };
        tokio::join!(site.read_anonymously("test://hanging"), waiting)
    };
    let own = async {
        eventually("both fetches are in progress", async || fetches().await == 2.0).await;
        assert_eq!(site.text("test://a").await, "here");
    };
    tokio::select! {
        answers = anonymous => panic!("{answers:?}"),
        () = own => {}
    }
}
