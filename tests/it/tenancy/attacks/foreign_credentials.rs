//! Attacks with credentials that are valid elsewhere.

use http::StatusCode;
use serde_json::json;

use super::{Rivals, SECRET, read, rivals, text_of};
use crate::support::app::mistyped;
use crate::tenancy::probes::{self, UNKNOWN};

#[tokio::test(flavor = "multi_thread")]
async fn two_credentials_are_refused_like_none() {
    let rivals = rivals().await;
    let Rivals { replica, a, b, acme, rival, .. } = &rivals;
    let bearer = |key: &str| format!("Bearer {key}");
    let cases: Vec<Vec<(&str, String)>> = vec![
        vec![("x-agent-api-key", a.clone()), ("authorization", bearer(b))],
        vec![("x-agent-api-key", b.clone()), ("authorization", bearer(a))],
        vec![("x-agent-api-key", a.clone()), ("authorization", bearer(acme))],
        vec![("x-agent-api-key", a.clone()), ("authorization", bearer(rival))],
        vec![("authorization", bearer(acme)), ("authorization", bearer(rival))],
        vec![("authorization", bearer(rival)), ("authorization", bearer(acme))],
        vec![("x-agent-api-key", a.clone()), ("x-agent-api-key", b.clone())],
        vec![("x-agent-api-key", format!("{a}, {b}"))],
        vec![("authorization", format!("{}, {}", bearer(acme), bearer(rival)))],
        vec![("authorization", bearer(&format!("{acme} {rival}")))],
        vec![("authorization", bearer(&replica.operator)), ("x-agent-api-key", a.clone())],
        vec![("authorization", format!("Basic {acme}"))],
        vec![("authorization", String::new()), ("x-agent-api-key", a.clone())],
    ];
    for headers in cases {
        let mut headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        headers.push(("content-type", "application/json"));
        for agent in ["a", "b", UNKNOWN] {
            let answer =
                replica.http.send("POST", &format!("/{agent}/mcp"), &headers, read().to_string()).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{headers:?}");
            assert_eq!(answer.json()["error"]["data"]["code"], "unauthenticated");
        }
        for path in ["/admin/v1/agents/a", "/admin/v1/agents/b", "/admin/v1/tenants"] {
            let answer = replica.http.send("GET", path, &headers, "").await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path} {headers:?}");
        }
    }
    for path in ["/b/mcp?key=", "/b/mcp?x-agent-api-key=", "/b/mcp?access_token="] {
        let headers = [("content-type", "application/json")];
        let answer = replica.http.send("POST", &format!("{path}{b}"), &headers, read().to_string()).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "a key in a URL stays in logs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_key_is_refused_at_agent_endpoints() {
    let rivals = rivals().await;
    let operator = rivals.replica.operator.as_str();
    for probe in probes::of_endpoints("x:1") {
        probe.reveals_nothing(&rivals.replica.http, Some(operator), "b", UNKNOWN).await.unwrap();
        let answer = probe.send(&rivals.replica.http, Some(operator), "b").await;
        assert!(!answer.text().contains(SECRET), "{probe:?}");
    }
}

/// Everything that another tenant can send, with every kind of credential that is valid elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_agent_is_indistinguishable_from_an_unknown_one() {
    let rivals = rivals().await;
    let replica = &rivals.replica;
    replica.agent("rival", "disabled").await;
    replica.agent("rival", "gone").await;
    replica.agent("rival", "empty").await;
    replica.admin("PATCH", "/agents/disabled", Some(json!({"enabled": false}))).await;
    replica.admin("DELETE", "/agents/gone", None).await;
    let (revoked, secret) = replica.key("a", &["mcp"]).await;
    replica.admin("DELETE", &format!("/keys/{revoked}"), None).await;
    let (_, registry) = replica.key("a", &["registry"]).await;
    let (_, audit) = replica.key("a", &["audit"]).await;
    let typo = mistyped(&rivals.a);
    let bearers = [
        None,
        Some(&*rivals.a),
        Some(&*rivals.acme),
        Some(&*secret),
        Some(&*registry),
        Some(&*audit),
        Some(&*typo),
    ];
    for bearer in bearers {
        for agent in ["b", "disabled", "gone", "empty"] {
            for probe in probes::of_endpoints("x:1").iter().chain(&probes::of_administration("x:1")) {
                probe.reveals_nothing(&replica.http, bearer, agent, UNKNOWN).await.unwrap();
            }
        }
        for probe in probes::of_tenants() {
            probe.reveals_nothing(&replica.http, bearer, "rival", UNKNOWN).await.unwrap();
        }
    }
    assert_eq!(text_of(&replica.http.post("b", &rivals.b, &read()).await).as_deref(), Some(SECRET));
    assert_eq!(
        text_of(&replica.http.post_bearer("b", &rivals.rival, &read()).await).as_deref(),
        Some(SECRET)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn slug_conflict_does_not_reveal_the_owner() {
    let rivals = rivals().await;
    let replica = &rivals.replica;
    replica.agent("rival", "gone").await;
    replica.admin("DELETE", "/agents/gone", None).await;
    for (id, code) in [("b", "already_exists"), ("gone", "slug_retired")] {
        let answer = replica
            .http
            .admin(&rivals.acme, "POST", "/agents", Some(json!({"id": id, "tenant": "acme"})))
            .await;
        assert_eq!((answer.status, &answer.json()["code"]), (StatusCode::CONFLICT, &json!(code)));
        assert!(!answer.text().contains("rival"), "{}", answer.text());
    }
}
