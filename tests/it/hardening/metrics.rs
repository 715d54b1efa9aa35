//! `/metrics`: access, listener and content.

use serde_json::json;

use crate::support::answers::{exact, problem};
use crate::support::app::{Builder, Replica, gateway};
use crate::support::cluster::database;
use crate::support::http::{Answer, Client};
use crate::support::metrics::sample;

async fn scrape(client: &Client, headers: &[(&str, &str)]) -> Answer {
    client.send("GET", "/metrics", headers, "").await
}

fn refused() -> serde_json::Value {
    let mut refused = problem(401, "unauthenticated", "a valid credential is required");
    refused["headers"].as_object_mut().unwrap().remove("cache-control");
    refused
}

#[tokio::test]
async fn metrics_are_visible_to_loopback_and_the_operator_only() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let [operator, agent] = [&replica.operator, &key].map(|key| format!("Bearer {key}"));
    let local = scrape(&replica.http, &[]).await;
    assert_eq!(
        (local.status.as_u16(), local.header("content-type")),
        (200, Some("text/plain; version=0.0.4; charset=utf-8"))
    );
    for handed_on in ["x-forwarded-for", "forwarded", "via", "x-real-ip"] {
        let from_elsewhere = (handed_on, "192.0.2.1");
        assert_eq!(exact(&scrape(&replica.http, &[from_elsewhere]).await), refused(), "{handed_on}");
        let as_agent = [from_elsewhere, ("authorization", agent.as_str())];
        assert_eq!(exact(&scrape(&replica.http, &as_agent).await), refused(), "{handed_on}");
        let as_operator = [from_elsewhere, ("authorization", operator.as_str())];
        assert_eq!(scrape(&replica.http, &as_operator).await.status, 200, "{handed_on}");
    }
    let foreign = ("host", "evil.example");
    assert_eq!(scrape(&replica.http, &[foreign]).await.status, 403, "nor does a web page");
    for literal in ["10.0.0.7:8095", "[2001:db8::1]"] {
        assert_eq!(scrape(&replica.http, &[("host", literal)]).await.status, 200, "{literal}");
    }
    for headers in [[foreign, ("authorization", agent.as_str())], [foreign, ("via", "1.1 x")]] {
        assert_eq!(scrape(&replica.http, &headers).await.status, 403, "{headers:?}");
    }
    let held = [foreign, ("via", "1.1 x"), ("authorization", operator.as_str())];
    assert_eq!(scrape(&replica.http, &held).await.status, 200);
    assert_eq!(exact(&scrape(&replica.http, &[("authorization", agent.as_str())]).await), refused());
    assert_eq!(replica.http.send("POST", "/metrics", &[], "").await.status, 405);
}

#[tokio::test]
async fn metrics_token_opens_only_metrics_from_any_address() {
    const TOKEN: &str = "a-token-of-prometheus";
    let database = database().await;
    let builder = Builder::new(&database).set("WAGGLE_SERVER__ALLOWED_HOSTS", "mcp.example.com");
    let replica = builder.set("WAGGLE_METRICS__TOKEN", TOKEN).start().await;
    let [token, wrong, other] = [TOKEN.to_owned(), format!("{TOKEN}s"), replica.operator.clone()]
        .map(|token| format!("Bearer {token}"));
    let elsewhere = [("via", "1.1 x"), ("host", "waggle.internal:8095")];
    let from_elsewhere = async |token: &str| {
        let headers = [elsewhere[0], elsewhere[1], ("authorization", token)];
        scrape(&replica.http, &headers).await.status.as_u16()
    };
    assert_eq!((from_elsewhere(&token).await, from_elsewhere(&other).await), (200, 200));
    assert_eq!(
        (from_elsewhere(&wrong).await, scrape(&replica.http, &elsewhere).await.status.as_u16()),
        (403, 403)
    );
    assert_eq!(scrape(&replica.http, &[]).await.status, 200, "by address, on this machine");
    assert_eq!(scrape(&replica.http, &[("host", "waggle.internal")]).await.status, 403);
    let own = ("host", "mcp.example.com");
    let twice = [own, ("authorization", token.as_str()), ("x-agent-api-key", TOKEN)];
    assert_eq!(scrape(&replica.http, &twice).await.status, 401);
    for path in ["/admin/v1/tenants", "/a/mcp"] {
        let headers = [own, ("authorization", token.as_str()), ("content-type", "application/json")];
        assert_eq!(replica.http.send("POST", path, &headers, "{}").await.status, 401, "{path}");
    }
}

#[tokio::test]
async fn invalid_metrics_credentials_are_charged_to_their_address() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__ADDRESS_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__ADDRESS_BURST", 5)
        .start()
        .await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(scrape(&replica.http, &[("via", "1.1 x")]).await.status.as_u16());
    }
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429]);
}

#[tokio::test]
async fn metrics_are_served_by_the_admin_listener() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_ADMIN__LISTEN", "127.0.0.1:0").start().await;
    let admin = Client::new(replica.running.admin_address);
    let exposed = scrape(&admin, &[]).await.text();
    assert!(sample(&exposed, "waggle_connections{listener=\"admin\"}").is_some(), "{exposed}");
    let bearer = format!("Bearer {}", replica.operator);
    let mut not_found = problem(404, "not_found", "no such path");
    not_found["headers"].as_object_mut().unwrap().remove("cache-control");
    assert_eq!(exact(&scrape(&replica.http, &[("authorization", &bearer)]).await), not_found);
}

#[tokio::test]
async fn metrics_count_requests_and_events() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__KEY_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__KEY_BURST", 5)
        .start()
        .await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "text").await;
    // Otherwise increase() would not see the first refusal.
    for name in [
        "waggle_requests_total{method=\"other\",era=\"legacy\",outcome=\"unauthenticated\"}",
        "waggle_requests_total{method=\"ping\",era=\"legacy\",outcome=\"rate_limited\"}",
        "waggle_rate_limited_total{scope=\"key\"}",
        "waggle_shed_total",
        "waggle_audit_lost_total",
        "waggle_feed_sweeps_total{outcome=\"failed\"}",
    ] {
        assert_eq!(value(&replica, name).await.as_deref(), Some("0"), "{name}");
    }
    for _ in 0..3 {
        assert!(replica.http.text("a", &key, "x:1").await.is_some());
    }
    replica.http.call("a", &key, "resources/read", json!({"uri": "x:2"})).await;
    replica.http.call("a", &key, "made/up", json!({})).await;
    replica.http.call("a", &key, "ping", json!({})).await;
    replica.http.call("a", &crate::support::app::mistyped(&key), "ping", json!({})).await;
    let exposed = scrape(&replica.http, &[]).await.text();
    let requests = |method: &str, outcome: &str| {
        let name =
            format!("waggle_requests_total{{method=\"{method}\",era=\"legacy\",outcome=\"{outcome}\"}}");
        sample(&exposed, &name).map(str::to_owned)
    };
    assert_eq!(requests("resources/read", "ok").as_deref(), Some("3"), "{exposed}");
    assert_eq!(requests("resources/read", "resource_not_found").as_deref(), Some("1"));
    assert_eq!(requests("other", "method_not_found").as_deref(), Some("1"));
    assert_eq!(requests("ping", "rate_limited").as_deref(), Some("1"));
    assert_eq!(requests("other", "unauthenticated").as_deref(), Some("1"));
    for (name, value) in [
        ("waggle_request_duration_seconds_count{method=\"resources/read\"}", "4"),
        ("waggle_request_duration_seconds_bucket{method=\"resources/read\",le=\"+Inf\"}", "4"),
        ("waggle_rate_limited_total{scope=\"key\"}", "1"),
        ("waggle_rate_limited_total{scope=\"address\"}", "0"),
        ("waggle_results_total{outcome=\"hit\"}", "2"),
        ("waggle_results_total{outcome=\"miss\"}", "1"),
        ("waggle_key_look_ups_total", "1"),
        ("waggle_streams{era=\"modern\"}", "0"),
        ("waggle_render_places_free", "4"),
        ("waggle_feed_sweeps_total{outcome=\"failed\"}", "0"),
    ] {
        assert_eq!(sample(&exposed, name), Some(value), "{name}\n{exposed}");
    }
    assert_eq!(sample(&exposed, "waggle_connections{listener=\"admin\"}"), None);
    is_well_formed(&exposed);
}

/// Every line is a comment of a family or a sample of the one before.
fn is_well_formed(text: &str) {
    let mut family = "";
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().unwrap();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(name == family && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(family) && value.parse::<f64>().is_ok(), "{line}");
        }
    }
}

async fn value(replica: &Replica, name: &str) -> Option<String> {
    sample(&scrape(&replica.http, &[]).await.text(), name).map(str::to_owned)
}

/// Makes a key of the agent `a` that expires in so many days.
async fn make_expiring(replica: &Replica, days: i64) {
    let expires = time::OffsetDateTime::now_utc() + time::Duration::days(days);
    let expires = expires.format(&time::format_description::well_known::Rfc3339).unwrap();
    let made = replica.admin("POST", "/agents/a/keys", Some(json!({"expiresAt": expires}))).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

/// `waggle_keys_expiring` after they were counted anew.
async fn count_expiring(replica: &Replica) -> Option<String> {
    replica.running.services.identity.count_expiring_keys().await;
    value(replica, "waggle_keys_expiring").await
}

#[tokio::test]
async fn keys_expiring_soon_are_counted() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    for days in [1, 13, 15] {
        make_expiring(&replica, days).await;
    }
    let counted = async || count_expiring(&replica).await;
    assert_eq!(counted().await.as_deref(), Some("2"));
    let keys = replica.admin("GET", "/agents/a/keys", None).await.json();
    let expiring = |days: i64| {
        let by = time::OffsetDateTime::now_utc() + time::Duration::days(days);
        let expires = |key: &&serde_json::Value| {
            let at = key["expiresAt"].as_str()?;
            time::OffsetDateTime::parse(at, &time::format_description::well_known::Rfc3339).ok()
        };
        let key = keys["items"].as_array().unwrap().iter().find(|key| expires(key).is_some_and(|at| at < by));
        key.unwrap()["id"].as_str().unwrap().to_owned()
    };
    // The one that never expires is rotated: its successor does not expire either, and the old one counts for nothing.
    let lasting = keys["items"].as_array().unwrap().iter().find(|key| key["expiresAt"].is_null()).unwrap();
    let rotate = async |id: &str| {
        let path = format!("/keys/{id}/rotate");
        let rotated = replica.admin("POST", &path, Some(json!({"graceSeconds": 3_600}))).await;
        assert_eq!(rotated.status, 201, "{}", rotated.text());
        rotated.json()["id"].as_str().unwrap().to_owned()
    };
    let successor = rotate(lasting["id"].as_str().unwrap()).await;
    assert_eq!(counted().await.as_deref(), Some("2"));
    // Without its successor it expires without a replacement.
    assert_eq!(replica.admin("DELETE", &format!("/keys/{successor}"), None).await.status, 204);
    assert_eq!(counted().await.as_deref(), Some("3"));
    // One that expires is replaced by one that does, too: one of them counts.
    rotate(&expiring(2)).await;
    assert_eq!(counted().await.as_deref(), Some("3"));
}

#[tokio::test]
async fn keys_that_end_by_their_age_are_counted() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    make_expiring(&replica, 10).await;
    let counted = async || count_expiring(&replica).await;
    let limit = async |days: Option<u16>| {
        let limited = replica.admin("PATCH", "/tenants/acme", Some(json!({"maxKeyAgeDays": days}))).await;
        assert_eq!(limited.status, 200, "{}", limited.text());
    };
    let active = database
        .number("select count(*) from api_keys where revoked_at is null and tenant is not null")
        .await;
    assert_eq!(counted().await.as_deref(), Some("1"));
    // All of them end before the expiry of the one, which counts once.
    limit(Some(5)).await;
    assert_eq!(counted().await, Some(active.to_string()));
    limit(Some(12)).await;
    assert_eq!(counted().await, Some(active.to_string()));
    limit(Some(30)).await;
    assert_eq!(counted().await.as_deref(), Some("1"));
    // What has ended already does not end soon.
    limit(Some(5)).await;
    database.execute("update api_keys set created_at = created_at - interval '6 days'").await;
    assert_eq!(counted().await.as_deref(), Some("0"));
    limit(None).await;
    assert_eq!(counted().await.as_deref(), Some("1"));
}
