//! `/tenants`.

use serde_json::{Value, json};

use super::send_json;
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::gateway;

#[tokio::test]
async fn tenant_is_created_read_renamed_and_deleted() {
    let (_database, replica) = gateway().await;
    let admin = async |method, path, body| normalized(&replica.admin(method, path, body).await);

    let acme = json!({"id": "acme", "uuid": "<uuid>", "name": "Acme", "maxKeyAgeDays": null, "createdAt": "<moment>"});
    let made = admin("POST", "/tenants", Some(json!({"id": "acme", "name": "Acme"}))).await;
    assert_eq!(made, answered(201, Some(1), &acme));
    let bee =
        json!({"id": "bee", "uuid": "<uuid>", "name": "bee", "maxKeyAgeDays": null, "createdAt": "<moment>"});
    assert_eq!(admin("POST", "/tenants", Some(json!({"id": "bee"}))).await, answered(201, Some(1), &bee));
    assert_eq!(admin("GET", "/tenants/acme", None).await, answered(200, Some(1), &acme));
    let all = json!({"items": [acme, bee], "nextCursor": null});
    assert_eq!(admin("GET", "/tenants", None).await, answered(200, None, &all));

    let renamed = json!({"id": "acme", "uuid": "<uuid>", "name": "智能", "maxKeyAgeDays": null, "createdAt": "<moment>"});
    for (body, revision, shown) in [
        (json!({"name": "智能"}), 2, &renamed),
        (json!({"name": "智能"}), 2, &renamed),
        (json!({}), 2, &renamed),
    ] {
        let answer = admin("PATCH", "/tenants/acme", Some(body)).await;
        assert_eq!(answer, answered(200, Some(revision), shown));
    }

    let taken = problem(409, "already_exists", "a tenant with this id exists already");
    assert_eq!(admin("POST", "/tenants", Some(json!({"id": "bee", "name": "x"}))).await, taken);
    assert_eq!(admin("DELETE", "/tenants/acme", None).await, answered(204, Some(3), &Value::Null));
    let gone = problem(404, "not_found", "no such tenant");
    for (method, body) in [("GET", None), ("DELETE", None), ("PATCH", Some(json!({})))] {
        assert_eq!(admin(method, "/tenants/acme", body).await, gone, "{method}");
    }
    let again = json!({"id": "acme", "uuid": "<uuid>", "name": "acme", "maxKeyAgeDays": null, "createdAt": "<moment>"});
    let made = admin("POST", "/tenants", Some(json!({"id": "acme"}))).await;
    assert_eq!(made, answered(201, Some(4), &again), "revisions continue above those of the deleted tenant");
}

#[tokio::test]
async fn creation_returns_the_same_representation_as_a_later_read() {
    let (_database, replica) = gateway().await;
    for (made, shown, body) in [
        ("/tenants", "/tenants/acme", json!({"id": "acme"})),
        ("/agents", "/agents/a", json!({"id": "a", "tenant": "acme"})),
    ] {
        let made = replica.admin("POST", made, Some(body)).await;
        assert_eq!(made.text(), replica.admin("GET", shown, None).await.text());
    }
    let key = json!({"expiresAt": "2999-01-01T00:00:00.123456789Z"});
    let mut made = replica.admin("POST", "/agents/a/keys", Some(key)).await.json();
    made.as_object_mut().unwrap().remove("key").unwrap();
    let listed = replica.admin("GET", "/agents/a/keys", None).await.json();
    assert_eq!(listed, json!({"items": [made], "nextCursor": null}));
    assert_eq!(made["expiresAt"], "2999-01-01T00:00:00.123456Z");
}

#[tokio::test]
async fn deleting_a_tenant_deletes_its_agents_and_keys() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let owner = super::owner(&replica, "acme").await;
    assert_eq!(replica.admin("DELETE", "/tenants/acme", None).await.status, 204);
    let refused = problem(401, "unauthenticated", "a valid credential is required");
    for key in [&key, &owner] {
        assert_eq!(normalized(&replica.http.admin(key, "GET", "/agents/a/resources", None).await), refused);
    }
    let none = answered(200, None, &json!({"items": [], "nextCursor": null}));
    for list in ["/tenants", "/agents"] {
        assert_eq!(normalized(&replica.admin("GET", list, None).await), none, "{list}");
    }
}

#[tokio::test]
async fn unknown_members_and_parameters_are_refused_by_name() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let unknown = |member: &str, known: &str, column: usize| {
        let detail = format!("unknown field `{member}`, expected {known} at line 1 column {column}");
        problem(400, "invalid_params", &detail)
    };
    let of_agents =
        "one of `id`, `tenant`, `name`, `title`, `instructions`, `access`, `tools`, `enabled`, `limits`";
    let of_resources = "one of `uri`, `name`, `title`, `description`, `mimeType`, `annotations`, `icons`, `_meta`, \
                        `labels`, `contents`, `source`";
    for (call, body, expected) in [
        (
            ("POST", "/tenants"),
            r#"{"id":"x","nam":1}"#,
            unknown("nam", "one of `id`, `name`, `maxKeyAgeDays`, `limits`, `agentLimits`", 15),
        ),
        (
            ("PATCH", "/tenants/acme"),
            r#"{"id":"x"}"#,
            unknown("id", "one of `name`, `maxKeyAgeDays`, `limits`, `agentLimits`", 5),
        ),
        (("POST", "/agents"), r#"{"slug":"x"}"#, unknown("slug", of_agents, 7)),
        (
            ("PATCH", "/agents/a"),
            r#"{"tenant":"x"}"#,
            unknown(
                "tenant",
                "one of `name`, `title`, `instructions`, `access`, `tools`, `enabled`, `limits`",
                9,
            ),
        ),
        (
            ("POST", "/agents/a/keys"),
            r#"{"expires_at":null}"#,
            unknown("expires_at", "one of `name`, `scopes`, `expiresAt`, `networks`, `labels`, `limits`", 13),
        ),
        (
            ("PUT", "/agents/a/resources?uri=x:1"),
            r#"{"name":"n","mime_type":"a/b","contents":[]}"#,
            unknown("mime_type", of_resources, 23),
        ),
        (
            ("PUT", "/agents/a/resources?uri=x:1"),
            r#"{"name":"n","contents":[{"txt":"a"}]}"#,
            problem(
                400,
                "invalid_params",
                "contents[0]: unknown field `txt`, expected one of `text`, `blob`, `mimeType`, `uri`, `_meta` at line 1 column 30",
            ),
        ),
    ] {
        assert_eq!(normalized(&send_json(&replica, call, body).await), expected, "{call:?}");
    }
    for (method, path, detail) in [
        ("GET", "/tenants?tenant=a", "unknown field `tenant`, expected `limit` or `cursor`"),
        ("GET", "/agents?x=1", "unknown field `x`, expected one of `tenant`, `limit`, `cursor`"),
        ("PATCH", "/agents/a?dryRun=true", "unknown field `dryRun`, there are no fields"),
        ("DELETE", "/tenants/acme?dryRun", "unknown field `dryRun`, there are no fields"),
        ("DELETE", "/agents/a/resources?uri=x:1&all=1", "unknown field `all`, expected `uri`"),
        ("GET", "/agents?limit=1&limit=2", "duplicate field `limit`"),
        ("PUT", "/agents/a/resources/content", "missing field `uri`"),
        ("GET", "/agents/a/resources?uri=x:1&limit=1", "uri cannot be combined with limit or cursor"),
    ] {
        let expected = problem(400, "invalid_params", &format!("query: {detail}"));
        assert_eq!(normalized(&send_json(&replica, (method, path), "{}").await), expected, "{method} {path}");
    }
}
