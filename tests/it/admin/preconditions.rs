//! `If-Match` and `If-None-Match` (RFC 9110, section 13).

use serde_json::{Value, json};

use super::send;
use crate::support::answers::{normalized, problem};
use crate::support::app::{Replica, gateway, resource};

async fn under(replica: &Replica, call: (&str, &str), condition: (&str, &str)) -> Value {
    let body = match call {
        ("PUT", path) if path.contains("/templates") => r#"{"name":"n","template":""}"#,
        ("PUT", path) if path.contains("/prompts") => {
            r#"{"messages":[{"role":"user","content":{"type":"text","text":""}}]}"#
        }
        ("PUT", path) if path.ends_with("/manifest") => r#"{"apiVersion":"waggle/v1"}"#,
        ("PUT", _) => r#"{"name":"n","contents":[{"text":"t"}]}"#,
        (_, path) if path.starts_with("/keys/") => "{}",
        _ => r#"{"name":"n"}"#,
    };
    let headers = [("content-type", "application/json"), condition];
    normalized(&send(replica, &replica.operator, call, &headers, body).await)
}

fn mismatch(current: i64) -> Value {
    let detail = format!("precondition failed: the current revision is {current}");
    problem(412, "revision_mismatch", &detail)
}

#[tokio::test]
async fn write_with_a_failed_precondition_changes_nothing() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let revision = replica.put("a", "x:1", "t").await;
    let resource = resource("a", "x:1");
    let content = resource.replace("resources?", "resources/content?");
    let touch = resource.replace("resources?", "resources/touch?");
    let (template, prompt, manifest) =
        ("/agents/a/templates?uriTemplate=y:%7Ba%7D", "/agents/a/prompts/p", "/agents/a/manifest");
    for made in [template, prompt] {
        assert_eq!(under(&replica, ("PUT", made), ("if-none-match", "*")).await["status"], 201);
    }
    let agent = replica.admin("GET", "/agents/a", None).await.revision();
    let made = replica.admin("POST", "/agents/a/keys", Some(json!({}))).await;
    let key = format!("/keys/{}", made.json()["id"].as_str().unwrap());
    let rotate = format!("{key}/rotate");
    let calls = [
        (("PATCH", key.as_str()), made.revision()),
        (("POST", rotate.as_str()), made.revision()),
        (("DELETE", key.as_str()), made.revision()),
        (("PUT", template), revision + 1),
        (("DELETE", template), revision + 1),
        (("PUT", prompt), revision + 2),
        (("DELETE", prompt), revision + 2),
        (("PUT", manifest), revision + 2),
        (("PUT", resource.as_str()), revision),
        (("PUT", content.as_str()), revision),
        (("POST", touch.as_str()), revision),
        (("DELETE", resource.as_str()), revision),
        (("PATCH", "/agents/a"), agent),
        (("DELETE", "/agents/a"), agent),
        (("PATCH", "/tenants/acme"), 1),
        (("DELETE", "/tenants/acme"), 1),
    ];
    for (call, current) in calls {
        let present = format!("\"{current}\"");
        for (name, value) in [
            ("if-match", "\"999\""),
            ("if-match", "\"0\""),
            ("if-match", ""),
            ("if-match", "\"0\", ,"),
            ("if-match", "\"abc\""),
            ("if-match", "\"\""),
            ("if-match", &format!("W/{present}")),
            ("if-match", "\"998\", \"999\""),
            ("if-match", "\"-1\""),
            ("if-match", "\"99999999999999999999\""),
            ("if-none-match", "*"),
            ("if-none-match", &present),
            ("if-none-match", &format!("\"999\", W/{present}")),
        ] {
            assert_eq!(
                under(&replica, call, (name, value)).await,
                mismatch(current),
                "{call:?} {name}: {value}"
            );
        }
        for (name, malformed) in [
            ("if-match", "1"),
            ("if-match", "\"1"),
            ("if-match", "'1'"),
            ("if-match", "\"1\" \"2\""),
            ("if-none-match", "1"),
        ] {
            let header = if name == "if-match" { "If-Match" } else { "If-None-Match" };
            let detail = format!("{header} must be * or revisions in quotes, as in \"7\"");
            let answer = under(&replica, call, (name, malformed)).await;
            assert_eq!(answer, problem(400, "invalid_params", &detail), "{call:?} {name}: {malformed}");
        }
    }
    // None of them had an effect.
    assert_eq!(replica.admin("GET", &resource, None).await.revision(), revision);

    for (condition, call, status) in [
        (("if-match", "*"), ("PUT", resource.as_str()), 200),
        (("if-match", "\"1\", \"5\""), ("PUT", &resource), 200),
        (("if-none-match", "\"1\""), ("PUT", &resource), 200),
        (("if-match", "\"5\""), ("POST", &touch), 202),
        (("if-match", "\"6\""), ("DELETE", &resource), 204),
        (("if-match", "\"3\""), ("DELETE", template), 204),
        (("if-match", "\"8\""), ("PUT", manifest), 200),
        (("if-match", "\"9\""), ("PATCH", "/agents/a"), 200),
        (("if-match", "*"), ("DELETE", "/agents/a"), 204),
        (("if-match", "\"1\""), ("PATCH", "/tenants/acme"), 200),
        (("if-none-match", "\"1\""), ("DELETE", "/tenants/acme"), 204),
    ] {
        assert_eq!(under(&replica, call, condition).await["status"], status, "{call:?} {condition:?}");
    }
}

#[tokio::test]
async fn absent_resource_matches_no_entity_tag() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let resource = resource("a", "x:1");
    let content = resource.replace("resources?", "resources/content?");
    let absent = problem(412, "revision_mismatch", "precondition failed: it does not exist");
    for put in [("PUT", resource.as_str()), ("PUT", &content)] {
        for tag in ["*", "\"1\"", "W/\"1\""] {
            assert_eq!(under(&replica, put, ("if-match", tag)).await, absent, "{put:?} {tag}");
        }
    }
    // A call that cannot succeed is answered with its own error first (section 13.2.1).
    let gone = problem(404, "not_found", "no such resource");
    assert_eq!(under(&replica, ("DELETE", &resource), ("if-match", "*")).await, gone);
    // Creates, but does not replace.
    let created = under(&replica, ("PUT", &resource), ("if-none-match", "*")).await;
    assert_eq!(created["status"], 201);
    let revision = replica.admin("GET", &resource, None).await.revision();
    assert_eq!(under(&replica, ("PUT", &resource), ("if-none-match", "*")).await, mismatch(revision));
}

#[tokio::test]
async fn repeated_and_combined_preconditions_all_apply() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    replica.put("a", "x:1", "t").await;
    let body = r#"{"name":"n","contents":[]}"#;
    let path = resource("a", "x:1");
    let put = async |conditions: &[(&str, &str)]| {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend_from_slice(conditions);
        send(&replica, &replica.operator, ("PUT", &path), &headers, body).await.status.as_u16()
    };
    assert_eq!(put(&[("if-match", "\"7\""), ("if-match", "\"8\"")]).await, 412);
    assert_eq!(put(&[("if-match", "\"2\""), ("if-none-match", "*")]).await, 412);
    assert_eq!(put(&[("if-match", "\"8\""), ("if-none-match", "\"7\"")]).await, 412);
    assert_eq!(put(&[("if-match", "\"7\""), ("if-match", "\"2\"")]).await, 200);
}

#[tokio::test]
async fn matching_if_none_match_is_answered_304() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    replica.put("a", "x:1", "t").await;
    let path = resource("a", "x:1");
    let content = path.replace("resources?", "resources/content?");
    let read = async |method, path: &str, tag| {
        normalized(&send(&replica, &replica.operator, (method, path), &[("if-none-match", tag)], "").await)
    };
    for known in ["\"2\"", "W/\"2\"", "*", "\"1\", \"2\""] {
        for method in ["GET", "HEAD"] {
            let answer = read(method, &path, known).await;
            assert_eq!((&answer["status"], &answer["body"]), (&304.into(), &Value::Null), "{known}");
            assert_eq!(answer["headers"]["etag"], "\"2\"");
        }
        assert_eq!(read("GET", &content, known).await["status"], 304, "{known}");
    }
    for other in ["\"1\"", "\"3\"", "nonsense"] {
        assert_eq!(read("GET", &path, other).await["status"], 200, "{other}");
    }
    assert_eq!(read("GET", "/agents", "*").await["status"], 200, "a list has no tag");
}

#[tokio::test]
async fn read_with_a_failed_if_match_is_answered_412() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    replica.put("a", "x:1", "t").await;
    let resource = resource("a", "x:1");
    let content = resource.replace("resources?", "resources/content?");
    for path in [resource.as_str(), &content, "/agents/a/manifest"] {
        for tag in ["\"1\"", "\"3\", \"4\"", "W/\"2\"", ""] {
            assert_eq!(under(&replica, ("GET", path), ("if-match", tag)).await, mismatch(2), "{path} {tag}");
            assert_eq!(
                under(&replica, ("HEAD", path), ("if-match", tag)).await["status"],
                412,
                "{path} {tag}"
            );
        }
        for tag in ["\"2\"", "\"1\", \"2-gzip\"", "*"] {
            assert_eq!(
                under(&replica, ("GET", path), ("if-match", tag)).await["status"],
                200,
                "{path} {tag}"
            );
        }
        let detail = "If-Match must be * or revisions in quotes, as in \"7\"";
        let malformed = under(&replica, ("GET", path), ("if-match", "2")).await;
        assert_eq!(malformed, problem(400, "invalid_params", detail), "{path}");
    }
    // `If-Match` is evaluated first (section 13.2.2).
    let both = |tag| [("if-match", tag), ("if-none-match", "\"2\"")];
    let read = async |tag| send(&replica, &replica.operator, ("GET", &resource), &both(tag), "").await.status;
    assert_eq!((read("\"1\"").await.as_u16(), read("\"2\"").await.as_u16()), (412, 304));
    assert_eq!(under(&replica, ("GET", "/agents"), ("if-match", "\"1\"")).await["status"], 200, "a list");
    let absent = resource.replace("x%3A1", "x%3A2");
    assert_eq!(under(&replica, ("GET", &absent), ("if-match", "\"1\"")).await["status"], 404, "{absent}");
}

#[tokio::test]
async fn key_writes_return_the_entity_tag_for_the_next_write() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let made = replica.admin("POST", "/agents/a/keys", Some(json!({}))).await;
    let path = format!("/keys/{}", made.json()["id"].as_str().unwrap());
    let send = async |method, path: &str, tag: i64, body: Value| {
        let tag = format!("\"{tag}\",");
        let headers = [("content-type", "application/json"), ("if-match", tag.as_str())];
        send(&replica, &replica.operator, (method, path), &headers, body.to_string()).await
    };
    let limits = json!({"limits": {"perSecond": 10}});
    let changed = send("PATCH", &path, made.revision(), limits.clone()).await;
    assert_eq!((changed.status.as_u16(), changed.revision()), (200, made.revision() + 1));
    assert_eq!(send("PATCH", &path, made.revision(), limits).await.status, 412, "it has changed since");
    let rotate = format!("{path}/rotate");
    assert_eq!(send("POST", &rotate, made.revision(), json!({})).await.status, 412);
    let rotated = send("POST", &rotate, changed.revision(), json!({})).await;
    assert_eq!((rotated.status.as_u16(), rotated.revision()), (201, changed.revision() + 1));
    assert_eq!(send("DELETE", &path, changed.revision(), json!({})).await.status, 412, "rotated since");
    let revoked = send("DELETE", &path, rotated.revision(), json!({})).await;
    assert_eq!((revoked.status.as_u16(), revoked.revision()), (204, rotated.revision() + 1));
}
