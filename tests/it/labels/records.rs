//! What the audit log and `explain` say about what labels hide.

use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};
use waggle::audit::verify::{Evidence, verify};
use waggle::store::audit::scan::AuditScan;

use super::visibility::{agent, key};
use crate::support::app::{Replica, resource};
use crate::support::cluster::Database;
use crate::support::http::Answer;
use crate::support::wait::{eventually, eventually_some};
use crate::tokens::{Fixture, PUBLIC_URL};

/// What verification of the audit log finds.
async fn findings(database: &Database) -> Vec<String> {
    let mut scan = AuditScan::begin(&database.options).await.unwrap();
    let evidence = Evidence { checkpoints: Vec::new(), trusted: Vec::new() };
    let report = verify(&mut scan, &evidence).await.unwrap();
    scan.end().await.unwrap();
    report.findings
}

async fn rows(replica: &Replica, key: &str, accept: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("accept", accept)];
    replica.http.send("GET", "/admin/v1/audit?agent=a&method=resources/read", &headers, "").await
}

#[tokio::test]
async fn owner_and_operator_are_shown_what_was_hidden() {
    let agent = agent().await;
    agent.put("x:team", &["team"]).await;
    let (_, auditor) = key(&agent.replica, json!({"scopes": ["audit"]})).await;
    for uri in ["x:team", "x:absent"] {
        assert_eq!(agent.text(&agent.none, uri).await, None);
    }
    assert!(agent.text(&agent.team, "x:team").await.is_some());
    let shown = async |key: &str| {
        eventually_some("three rows", async || {
            let items = rows(&agent.replica, key, "application/json").await.json()["items"].take();
            let items = items.as_array().unwrap().clone();
            let row =
                |row: &Value| (row["subject"].clone(), row["outcome"].clone(), row.get("hidden").cloned());
            (items.len() == 3).then(|| items.iter().map(row).collect::<Vec<_>>())
        })
        .await
    };
    let due = |hidden: Option<bool>| {
        [
            (json!("x:team"), json!("ok"), None),
            (json!("x:absent"), json!("resource_not_found"), None),
            (json!("x:team"), json!("resource_not_found"), hidden.map(Value::from)),
        ]
    };
    for reader in [&agent.replica.operator, &agent.owner] {
        assert_eq!(shown(reader).await, due(Some(true)));
        let lines = rows(&agent.replica, reader, "application/x-ndjson").await.text();
        assert_eq!(lines.matches("\"hidden\":true").count(), 1, "{lines}");
        let csv = rows(&agent.replica, reader, "text/csv").await.text();
        let versions: Vec<_> = csv.lines().skip(1).map(|line| &line[..2]).collect();
        assert_eq!(versions, ["1,", "1,", "2,"], "{csv}");
    }
    assert_eq!(shown(&auditor).await, due(None));
    for form in ["application/json", "application/x-ndjson", "text/csv"] {
        let text = rows(&agent.replica, &auditor, form).await.text();
        assert!(
            !text.contains("hidden") && !text.contains("\"version\":2") && !text.contains("\n2,"),
            "{text}"
        );
        // The hash of a row or of the one before tells by which version it was made.
        assert!(
            !text.contains("\"hash\"") && !text.contains("\"previous\"") && !text.contains(",\r\n,"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn token_of_the_whole_tenant_is_not_shown_what_was_hidden() {
    let fixture = Fixture::entry(json!({"tenant": "acme", "labels_claim": "groups"})).await;
    let replica = &fixture.replica;
    let body = json!({"name": "n", "contents": [{"text": "t"}], "labels": ["team"]});
    assert_eq!(replica.admin("PUT", &resource("a", "x:team"), Some(body)).await.status, 201);
    let token = fixture.token(json!({"groups": []}));
    let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:team"}});
    let answer = replica.http.post_bearer("a", &token, &read).await;
    assert!(answer.text().contains("resource_not_found"), "{}", answer.text());
    let auditor = fixture.token(json!({"aud": PUBLIC_URL, "scope": "audit", "groups": []}));
    let row = |reader: String| async move {
        eventually_some("the row", async || {
            let items = rows(replica, &reader, "application/json").await.json()["items"].take();
            items.get(0).cloned()
        })
        .await
    };
    let (own, operators) = tokio::join!(row(auditor), row(replica.operator.clone()));
    assert_eq!((operators["hidden"].clone(), operators["version"].clone()), (json!(true), json!(2)));
    let mut due = operators;
    for member in ["hidden", "previous", "hash"] {
        due.as_object_mut().unwrap().remove(member);
    }
    due["version"] = json!(1);
    assert_eq!(own, due);
}

#[tokio::test]
async fn verification_finds_a_concealed_refusal() {
    let agent = agent().await;
    agent.put("x:team", &["team"]).await;
    assert_eq!(agent.text(&agent.none, "x:team").await, None);
    let hidden = "select count(*) from audit_log where version = 2";
    eventually("a row of something hidden", async || agent.database.number(hidden).await == 1).await;
    assert_eq!(findings(&agent.database).await, Vec::<String>::new());
    let mut owner = PgConnection::connect_with(&agent.database.options).await.unwrap();
    let conceal =
        "set session_replication_role = replica; update audit_log set version = 1 where version = 2";
    owner.execute(conceal).await.unwrap();
    let found = findings(&agent.database).await;
    assert!(
        found.len() == 1 && found[0].ends_with("content does not match its hash: it was edited or moved"),
        "{found:?}"
    );
}

#[tokio::test]
async fn explain_names_labels() {
    let agent = agent().await;
    agent.put("x:team", &["team"]).await;
    let hello = json!([{"role": "user", "content": {"type": "text", "text": "hello"}}]);
    agent.prompt("secret", hello, &["team"]).await;
    agent.template("y:{v}", "t", &["team"]).await;
    agent.template("z:é/{v}", "t", &["team"]).await;
    let tools = json!({"tools": ["search", "resources", "prompts", "prompt_tools"]});
    assert_eq!(agent.replica.admin("PATCH", "/agents/a", Some(tools)).await.status, 200);
    let text = "---\nname: refunds\ndescription: How to refund.\n---\n";
    let skill = json!({"labels": ["team"], "files": [{"path": "SKILL.md", "text": text}]});
    let put = agent.replica.admin("PUT", "/agents/a/skills?path=acme/refunds", Some(skill)).await;
    assert_eq!(put.status, 201, "{}", put.text());
    let (none, _) = key(&agent.replica, json!({})).await;
    let (team, _) = key(&agent.replica, json!({"labels": ["team"]})).await;
    let explain = async |id: &str, method: &str, params: Value| {
        let question = json!({"keyId": id, "request": {"method": method, "params": params}});
        agent.replica.admin("POST", "/agents/a/explain", Some(question)).await.json()
    };
    for (method, params, code, detail) in [
        ("resources/read", json!({"uri": "x:team"}), "resource_not_found", "resource not found: x:team"),
        ("resources/read", json!({"uri": "y:1"}), "resource_not_found", "resource not found: y:1"),
        ("resources/subscribe", json!({"uri": "x:team"}), "resource_not_found", "resource not found: x:team"),
        ("prompts/get", json!({"name": "secret"}), "invalid_params", "unknown prompt: secret"),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/resource", "uri": "y:{v}"}}),
            "invalid_params",
            "unknown resource template: y:{v}",
        ),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/resource", "uri": "z:é/{v}"}}),
            "invalid_params",
            "unknown resource template: z:%C3%A9/{v}",
        ),
        (
            "skills/get",
            json!({"uri": "skill://acme/refunds/SKILL.md"}),
            "invalid_params",
            "unknown skill: skill://acme/refunds/SKILL.md",
        ),
        (
            "resources/directory/read",
            json!({"uri": "skill://acme"}),
            "invalid_params",
            "unknown directory: skill://acme",
        ),
        ("tools/call", json!({"name": "secret"}), "invalid_params", "unknown tool: secret"),
        (
            "tools/call",
            json!({"name": "read_resource", "arguments": {"uri": "x:team"}}),
            "resource_not_found",
            "resource not found: x:team",
        ),
        (
            "tools/call",
            json!({"name": "get_prompt", "arguments": {"name": "secret"}}),
            "invalid_params",
            "unknown prompt: secret",
        ),
        (
            "tools/call",
            json!({"name": "fetch", "arguments": {"id": "x:team"}}),
            "resource_not_found",
            "resource not found: x:team",
        ),
        (
            "tools/call",
            json!({"name": "fetch", "arguments": {"id": "prompt:secret"}}),
            "resource_not_found",
            "resource not found: prompt:secret",
        ),
        (
            "tools/call",
            json!({"name": "fetch", "arguments": {"id": "y:{v}"}}),
            "invalid_params",
            "arguments.id is not an absolute URI of RFC 3986",
        ),
    ] {
        let due = json!({"allowed": false, "rule": "label", "code": code, "status": 200, "detail": detail});
        assert_eq!(explain(&none, method, params.clone()).await, due, "{method}");
        assert_eq!(explain(&team, method, params).await["rule"], "allowed", "{method}");
    }
    for params in [json!({"uri": "x:absent"}), json!({"uri": 7}), Value::Null] {
        assert_eq!(explain(&none, "resources/read", params).await["rule"], "allowed");
    }
    for (method, params, detail) in [
        ("resources/foo", json!({}), "request.method: unknown method: resources/foo"),
        ("resources/read", json!(["x:team"]), "request.params must be an object"),
    ] {
        let refused = explain(&none, method, params).await;
        assert_eq!((&refused["code"], &refused["detail"]), (&json!("invalid_params"), &json!(detail)));
    }
    assert_eq!(agent.replica.admin("PATCH", "/agents/a", Some(json!({"tools": []}))).await.status, 200);
    assert_eq!(explain(&none, "tools/call", json!({"name": "secret"})).await["rule"], "allowed");
}
