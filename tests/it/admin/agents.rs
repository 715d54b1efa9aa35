//! `/agents`, and the reuse of slugs.

use serde_json::{Value, json};

use super::{owner, send_json};
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::gateway;

#[tokio::test]
async fn agent_is_created_read_updated_and_deleted() {
    let (_database, replica) = gateway().await;
    replica.tenant("acme").await;
    let admin = async |method, path, body| normalized(&replica.admin(method, path, body).await);

    let plain = json!({
        "id": "plain", "uuid": "<uuid>", "tenant": "acme", "name": "plain", "title": null, "instructions": null, "access": "key",
        "enabled": true, "tools": [], "createdAt": "<moment>",
    });
    let made = admin("POST", "/agents", Some(json!({"id": "plain", "tenant": "acme"}))).await;
    assert_eq!(made, answered(201, Some(1), &plain));

    let mut research = json!({
        "id": "research", "tenant": "acme", "name": "Research Assistant", "title": "研究", "instructions": "Read.",
        "access": "public", "enabled": false,
    });
    let made = admin("POST", "/agents", Some(research.clone())).await;
    research["tools"] = json!([]);
    research["createdAt"] = json!("<moment>");
    research["uuid"] = json!("<uuid>");
    assert_eq!(made, answered(201, Some(1), &research));
    assert_eq!(admin("GET", "/agents/research", None).await, answered(200, Some(1), &research));
    let all = json!({"items": [plain, research], "nextCursor": null});
    for list in ["/agents", "/agents?tenant=acme"] {
        assert_eq!(admin("GET", list, None).await, answered(200, None, &all), "{list}");
    }

    for (patch, revision) in [
        (json!({"enabled": true, "access": "key"}), 2),
        (json!({"enabled": true}), 2),
        (json!({}), 2),
        (json!({"title": null, "instructions": ""}), 3),
        (json!({"name": "R", "title": "T", "instructions": null}), 4),
    ] {
        for (member, value) in patch.as_object().unwrap() {
            research[member] = value.clone();
        }
        let changed = admin("PATCH", "/agents/research", Some(patch)).await;
        assert_eq!(changed, answered(200, Some(revision), &research));
    }
    replica.put("research", "x:1", "raises the revision of the catalog").await;
    assert_eq!(admin("GET", "/agents/research", None).await, answered(200, Some(5), &research));
    assert_eq!(admin("DELETE", "/agents/research", None).await, answered(204, Some(6), &Value::Null));
    let gone = problem(404, "not_found", "no such agent");
    for (method, body) in [("GET", None), ("DELETE", None), ("PATCH", Some(json!({})))] {
        assert_eq!(admin(method, "/agents/research", body).await, gone, "{method}");
    }
}

#[tokio::test]
async fn agent_needs_a_tenant_and_an_unused_unreserved_slug() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let form = "id must match ^[a-z0-9][a-z0-9_-]{0,62}$";
    let long = "a".repeat(64);
    for (id, tenant, expected) in [
        ("a", "acme", problem(409, "already_exists", "an agent with this id exists already")),
        ("b", "unknown", problem(404, "not_found", "no such tenant")),
        ("b", "No Slug", problem(404, "not_found", "no such tenant")),
        ("admin", "acme", problem(400, "invalid_params", "id is reserved")),
        ("well-known", "acme", problem(400, "invalid_params", "id is reserved")),
        ("Upper", "acme", problem(400, "invalid_params", form)),
        ("", "acme", problem(400, "invalid_params", form)),
        ("ä", "acme", problem(400, "invalid_params", form)),
        ("a\0", "acme", problem(400, "invalid_params", form)),
        (&long, "acme", problem(400, "invalid_params", form)),
    ] {
        let made = replica.admin("POST", "/agents", Some(json!({"id": id, "tenant": tenant}))).await;
        assert_eq!(normalized(&made), expected, "{id:?} of {tenant:?}");
    }
    let sixty_three = "a".repeat(63);
    replica.agent("acme", &sixty_three).await;
}

#[tokio::test]
async fn required_fields_of_an_agent_cannot_be_removed() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    for (patch, member, expected) in [
        (r#"{"name":null}"#, "name", "a string at line 1 column 12"),
        (r#"{"access":null}"#, "access", "a string at line 1 column 14"),
        (r#"{"enabled":null}"#, "enabled", "a boolean at line 1 column 15"),
    ] {
        let detail = format!("{member}: invalid type: null, expected {expected}");
        let answer = normalized(&send_json(&replica, ("PATCH", "/agents/a"), patch).await);
        assert_eq!(answer, problem(400, "invalid_params", &detail), "{patch}");
    }
    assert_eq!(replica.admin("GET", "/agents/a", None).await.revision(), 1);
}

#[tokio::test]
async fn reused_slug_stays_with_its_tenant_and_its_revisions_go_on() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    replica.tenant("bee").await;
    let bee = owner(&replica, "bee").await;
    let (_, old_key) = replica.key("a", &["mcp"]).await;
    let last = replica.put("a", "x:1", "of the first life").await;
    let deleted = replica.admin("DELETE", "/agents/a", None).await.revision();
    assert_eq!(deleted, last + 1);

    let retired = problem(409, "slug_retired", "this slug is retired");
    let wanted = json!({"id": "a", "tenant": "bee"});
    assert_eq!(normalized(&replica.admin("POST", "/agents", Some(wanted.clone())).await), retired);
    assert_eq!(normalized(&replica.http.admin(&bee, "POST", "/agents", Some(wanted)).await), retired);

    let again = replica.admin("POST", "/agents", Some(json!({"id": "a", "tenant": "acme"}))).await;
    assert_eq!((again.status.as_u16(), again.revision()), (201, deleted + 1));
    let resources = replica.admin("GET", "/agents/a/resources", None).await;
    assert_eq!(normalized(&resources), answered(200, None, &json!({"items": [], "nextCursor": null})));
    assert_eq!(replica.put("a", "x:1", "of the second life").await, deleted + 2);
    // A key of the deleted agent is not valid for the new one.
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(replica.http.post("a", &old_key, &ping).await.status, 401);
}

#[tokio::test]
async fn query_or_body_names_the_tenant_of_a_new_agent() {
    let (_database, replica) = gateway().await;
    replica.tenant("acme").await;
    replica.tenant("bees").await;
    let create =
        async |query: &str, body| replica.admin("POST", &format!("/agents{query}"), Some(body)).await;
    let made = create("?tenant=acme", json!({"id": "a"})).await;
    assert_eq!((made.status.as_u16(), made.json()["tenant"].clone()), (201, json!("acme")));
    assert_eq!(create("?tenant=acme", json!({"id": "b", "tenant": "acme"})).await.status, 201);
    for (query, body, detail) in [
        (
            "?tenant=acme",
            json!({"id": "c", "tenant": "bees"}),
            "tenant: the query and the body name different tenants",
        ),
        ("", json!({"id": "c"}), "missing field `tenant`"),
    ] {
        assert_eq!(normalized(&create(query, body).await), problem(400, "invalid_params", detail));
    }
    let bees = owner(&replica, "bees").await;
    let foreign = replica.http.admin(&bees, "POST", "/agents?tenant=acme", Some(json!({"id": "c"}))).await;
    assert_eq!(foreign.status, 404);
}

#[tokio::test]
async fn disabled_agent_that_is_made_again_stays_disabled_for_the_owner_alone() {
    let (_database, replica) = gateway().await;
    replica.tenant("acme").await;
    let acme = owner(&replica, "acme").await;
    let agent = json!({"id": "a", "tenant": "acme"});
    assert_eq!(replica.admin("POST", "/agents", Some(agent.clone())).await.status, 201);
    assert_eq!(replica.admin("PATCH", "/agents/a", Some(json!({"enabled": false}))).await.status, 200);
    for (key, enabled) in [(&acme, false), (&replica.operator, true)] {
        assert_eq!(replica.http.admin(&acme, "DELETE", "/agents/a", None).await.status, 204);
        let made = replica.http.admin(key, "POST", "/agents", Some(agent.clone())).await;
        assert_eq!((made.status.as_u16(), &made.json()["enabled"]), (201, &json!(enabled)));
    }
}
