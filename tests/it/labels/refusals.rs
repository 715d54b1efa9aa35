//! Invalid labels: each answer is compared whole, and nothing is written.

use serde_json::{Value, json};

use crate::support::answers::{exact, problem};
use crate::support::app::gateway;

/// A call with labels, and the JSON around them.
struct Call {
    method: &'static str,
    path: &'static str,
    before: &'static str,
    after: &'static str,
    /// The path of the member.
    member: &'static str,
}

const fn call(
    method: &'static str,
    path: &'static str,
    before: &'static str,
    after: &'static str,
    member: &'static str,
) -> Call {
    Call { method, path, before, after, member }
}

const CALLS: [Call; 9] = [
    call("PUT", "/agents/a/resources?uri=x:1", r#"{"name":"n","contents":[],"labels":"#, "}", "labels"),
    call(
        "PUT",
        "/agents/a/templates?uriTemplate=y:%7Bv%7D",
        r#"{"name":"n","template":"","labels":"#,
        "}",
        "labels",
    ),
    call("PUT", "/agents/a/prompts/p", r#"{"messages":[],"labels":"#, "}", "labels"),
    call(
        "PUT",
        "/agents/a/manifest",
        r#"{"apiVersion":"waggle/v1","resources":[{"uri":"x:1","name":"n","contents":[],"labels":"#,
        "}]}",
        "resources[0].labels",
    ),
    call(
        "PUT",
        "/agents/a/manifest?dryRun=true",
        r#"{"apiVersion":"waggle/v1","templates":[{"uriTemplate":"y:{v}","name":"n","template":"","labels":"#,
        "}]}",
        "templates[0].labels",
    ),
    call(
        "PUT",
        "/agents/a/manifest",
        r#"{"apiVersion":"waggle/v1","prompts":[{"name":"p","messages":[],"labels":"#,
        "}]}",
        "prompts[0].labels",
    ),
    call("POST", "/agents/a/keys", r#"{"labels":"#, "}", "labels"),
    call("POST", "/tenants/acme/keys", r#"{"labels":"#, "}", "labels"),
    call("PATCH", "/keys/{key}", r#"{"labels":"#, "}", "labels"),
];

/// An invalid value; the path of what is wrong below the member; what is wrong; and at which byte of the value that is
/// known.
fn values() -> Vec<(String, &'static str, String, usize)> {
    let no_list = |what: &str| format!("invalid type: {what}, expected a list of labels");
    let no_text = |what: &str| format!("invalid type: {what}, expected a string");
    let no_label = |text: &str| format!("a label must match ^[a-z0-9][a-z0-9_.:-]{{0,62}}$, found `{text}`");
    let (long, numbered) =
        ("a".repeat(64), |count: usize| (0..count).map(|n| format!("l{n}")).collect::<Vec<_>>());
    let mut values = vec![
        (r#""support""#.to_owned(), "", no_list("string \"support\""), 9),
        ("5".to_owned(), "", no_list("integer `5`"), 1),
        ("true".to_owned(), "", no_list("boolean `true`"), 4),
        (r#"{"support":true}"#.to_owned(), "", no_list("map"), 0),
        (r#"["a",7]"#.to_owned(), "[1]", no_text("integer `7`"), 6),
        (r#"["a",null]"#.to_owned(), "[1]", no_text("null"), 9),
        (r#"[["a"]]"#.to_owned(), "[0]", no_text("sequence"), 1),
        (r#"[{"a":1}]"#.to_owned(), "[0]", no_text("map"), 1),
    ];
    let texts = [
        "", "Support", "SUPPORT", "-a", "_a", ".a", ":a", "a b", " a", "a ", "a,b", "a/b", "a*", "ä", "a+",
        &long,
    ];
    for text in texts {
        let value = json!(["a", text]).to_string();
        let at = value.len();
        values.push((value, "[1]", no_label(text), at));
    }
    let many = json!(numbered(17)).to_string();
    let at = many.len();
    // Stops at the first label too many, before anything that follows.
    let more = format!("{},7]", &many[..at - 1]);
    values.push((many, "", "expected at most 16 labels".to_owned(), at));
    values.push((more, "", "expected at most 16 labels".to_owned(), at));
    values
}

#[tokio::test]
async fn invalid_labels_are_refused_wherever_they_are_given() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    let (key, _) = replica.key("a", &["mcp"]).await;
    let state = "select (sum(revision) + (select count(*) from api_keys))::bigint from heads";
    let unchanged = database.number(state).await;
    let mut requests = 0;
    for Call { method, path, before, after, member } in &CALLS {
        let path = path.replace("{key}", &key);
        let bearer = format!("Bearer {}", replica.operator);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let mut values = values();
        if *method == "PATCH" {
            // Elsewhere `null` is as omitted.
            let wrong = "invalid type: null, expected a list of labels".to_owned();
            values.push(("null".to_owned(), "", wrong, 4));
        }
        for (value, below, wrong, at) in values {
            let body = format!("{before}{value}{after}");
            let answer = replica.http.send(method, &format!("/admin/v1{path}"), &headers, body).await;
            let detail = format!("{member}{below}: {wrong} at line 1 column {}", before.len() + at);
            let expected = problem(400, "invalid_params", &detail);
            assert_eq!(exact(&answer), expected, "{method} {path} {value}");
            requests += 1;
        }
    }
    assert_eq!(requests, 9 * 26 + 1);
    assert_eq!(database.number(state).await, unchanged);
}

#[tokio::test]
async fn unknown_members_beside_labels_are_refused_by_name() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let (key, _) = replica.key("a", &["mcp"]).await;
    for (method, path, body, known) in [
        ("PATCH", format!("/keys/{key}"), json!({"label": ["a"]}), "expected `limits` or `labels`"),
        (
            "POST",
            "/agents/a/keys".to_owned(),
            json!({"Labels": ["a"]}),
            "expected one of `name`, `scopes`, `expiresAt`, `networks`, `labels`, `limits`",
        ),
    ] {
        let name = body.as_object().unwrap().keys().next().unwrap().clone();
        let answer = replica.admin(method, &path, Some(body)).await;
        let column = name.len() + 3;
        let detail = format!("unknown field `{name}`, {known} at line 1 column {column}");
        assert_eq!(exact(&answer), problem(400, "invalid_params", &detail));
    }
    let rest: Value = replica.admin("GET", "/agents/a/keys", None).await.json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 2);
}
