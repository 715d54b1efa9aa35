//! Prompts that ask for missing arguments.

use serde_json::{Value, json};

use super::{MODERN, REVISIONS, call_as, post, request};
use crate::revisions::Schema;
use crate::support::answers::{error, exact, message};
use crate::support::app::{Replica, gateway};
use crate::support::wait::eventually_some;

const FORM: &str = r#"{"form":{}}"#;

/// The agent `a` with the prompt `trip`, and a key.
async fn agent(replica: &Replica) -> String {
    let key = replica.acme("a").await;
    let prompt = json!({
        "title": "Plan a trip",
        "arguments": [
            {"name": "city", "title": "City", "description": "Where to", "required": true, "completions": ["Bonn"]},
            {"name": "days"},
            {
                "name": "pace", "description": "How fast", "required": true,
                "completions": ["slow", "fast", "slow"], "closed": true,
            },
        ],
        "messages": [{"role": "user", "content": {"type": "text", "text": "{{ city }} {{ days }} {{ pace }}"}}],
    });
    assert_eq!(replica.admin("PUT", "/agents/a/prompts/trip", Some(prompt)).await.status, 201);
    key
}

/// The answer to `prompts/get` of a client with this JSON text as its capability `elicitation`.
async fn get(replica: &Replica, key: &str, elicitation: Option<&str>, params: Value) -> Value {
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let capabilities = elicitation.map_or("{}".into(), |json| format!(r#"{{"elicitation":{json}}}"#));
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": serde_json::from_str::<Value>(&capabilities).unwrap(),
    });
    let headers = [
        ("x-agent-api-key", key),
        ("mcp-protocol-version", MODERN),
        ("mcp-method", "prompts/get"),
        ("mcp-name", &name),
    ];
    exact(&post(replica, "/a/mcp", &headers, request("prompts/get", &params).to_string()).await)
}

fn result(members: Value) -> Value {
    let mut result = members;
    result["_meta"] =
        json!({"io.modelcontextprotocol/serverInfo": {"name": "a", "version": env!("CARGO_PKG_VERSION")}});
    json!({"jsonrpc": "2.0", "id": 7, "result": result})
}

/// The answer that asks for these arguments.
fn asked(properties: &Value, required: &[&str]) -> Value {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let params = json!({
        "mode": "form",
        "message": "The prompt Plan a trip needs more arguments.",
        "requestedSchema": schema,
    });
    let requests = json!({"arguments": {"method": "elicitation/create", "params": params}});
    result(json!({"resultType": "input_required", "inputRequests": requests}))
}

fn city() -> Value {
    json!({"type": "string", "title": "City", "description": "Where to"})
}

fn pace() -> Value {
    json!({"type": "string", "description": "How fast", "enum": ["slow", "fast"]})
}

/// The answer that asks for both required arguments.
fn asked_for_both() -> Value {
    message(&asked(&json!({"city": city(), "pace": pace()}), &["city", "pace"]))
}

/// The rendered prompt.
fn rendered(text: &str) -> Value {
    let content = json!({"type": "text", "text": text});
    message(&result(json!({"resultType": "complete", "messages": [{"role": "user", "content": content}]})))
}

fn missing(names: &[&str]) -> Value {
    let mut expected = error(200, "7", -32602, "invalid_params", &format!("missing argument: {}", names[0]));
    expected["body"]["error"]["data"]["missing"] = json!(names);
    expected
}

fn accepted(content: &Value) -> Value {
    json!({"arguments": {"action": "accept", "content": content}})
}

#[tokio::test]
async fn client_with_forms_is_asked_for_what_is_missing() {
    let (_database, replica) = gateway().await;
    let key = agent(&replica).await;
    let schema = Schema::of(MODERN);
    for (arguments, properties, required) in [
        (json!({}), json!({"city": city(), "pace": pace()}), &["city", "pace"][..]),
        (json!({"days": "2"}), json!({"city": city(), "pace": pace()}), &["city", "pace"]),
        (json!({"pace": "slow"}), json!({"city": city()}), &["city"]),
        (json!({"city": ""}), json!({"pace": pace()}), &["pace"]),
    ] {
        let expected = asked(&properties, required);
        let params = json!({"name": "trip", "arguments": arguments});
        assert_eq!(get(&replica, &key, Some(FORM), params).await, message(&expected), "{arguments}");
        let result = &expected["result"];
        schema.check("InputRequiredResult", result);
        schema.check("ElicitRequest", &result["inputRequests"]["arguments"]);
        schema.check("ElicitRequestFormParams", &result["inputRequests"]["arguments"]["params"]);
        schema.check("GetPromptResultResponse", &expected);
    }
    let params = json!({"name": "trip", "arguments": {"city": "Bonn", "pace": "fast"}});
    assert_eq!(get(&replica, &key, Some(FORM), params).await, rendered("Bonn  fast"));
}

#[tokio::test]
async fn prompt_without_a_title_is_asked_for_by_name() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let prompt = json!({
        "arguments": [{"name": "who", "required": true}],
        "messages": [{"role": "user", "content": {"type": "text", "text": "{{ who }}"}}],
    });
    assert_eq!(replica.admin("PUT", "/agents/a/prompts/greet", Some(prompt)).await.status, 201);
    let answer = get(&replica, &key, Some("{}"), json!({"name": "greet"})).await;
    let params = &answer["body"]["result"]["inputRequests"]["arguments"]["params"];
    let schema = json!({"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]});
    let message = "The prompt greet needs more arguments.";
    assert_eq!(*params, json!({"mode": "form", "message": message, "requestedSchema": schema}));
}

#[tokio::test]
async fn only_clients_with_forms_are_asked() {
    let (_database, replica) = gateway().await;
    let key = agent(&replica).await;
    for elicitation in ["{}", r#"{"form":{}}"#, r#"{"url":{},"form":{}}"#, r#"{"form":{"x":1}}"#] {
        let answer = get(&replica, &key, Some(elicitation), json!({"name": "trip"})).await;
        assert_eq!(answer, asked_for_both(), "{elicitation}");
    }
    let unable =
        [r#"{"url":{}}"#, r#"{"form":null}"#, r#"{"form":true}"#, r#"{"other":{}}"#, "null", "true", "[]"];
    for elicitation in unable.map(Some).into_iter().chain([None]) {
        let answer = get(&replica, &key, elicitation, json!({"name": "trip"})).await;
        assert_eq!(answer, missing(&["city", "pace"]), "{elicitation:?}");
        let params = json!({"name": "trip", "arguments": {"city": "Bonn"}});
        assert_eq!(get(&replica, &key, elicitation, params).await, missing(&["pace"]), "{elicitation:?}");
    }
    let capable = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});
    for revision in REVISIONS.into_iter().filter(|revision| *revision != Some(MODERN)) {
        let content = json!({"city": "Bonn", "pace": "fast"});
        let params = json!({"name": "trip", "_meta": capable, "inputResponses": accepted(&content)});
        let answer = exact(&call_as(&replica, &key, revision, "prompts/get", params).await);
        assert_eq!(answer, missing(&["city", "pace"]), "{revision:?}");
    }
}

#[tokio::test]
async fn returned_values_complete_the_arguments() {
    let (_database, replica) = gateway().await;
    let key = agent(&replica).await;
    let both = json!({"city": "Köln", "pace": "slow"});
    for (arguments, responses, expected) in [
        (json!({}), accepted(&both), rendered("Köln  slow")),
        (json!({"city": "Bonn"}), accepted(&both), rendered("Bonn  slow")),
        (json!({"city": "Bonn", "pace": "fast", "days": "2"}), accepted(&both), rendered("Bonn 2 fast")),
        // Only what was asked for is taken.
        (
            json!({}),
            accepted(&json!({"city": "Köln", "pace": "slow", "days": "9", "x": {"y": []}})),
            rendered("Köln  slow"),
        ),
        (
            json!({}),
            json!({"arguments": {"action": "accept", "content": both, "_meta": {}}, "other": null}),
            rendered("Köln  slow"),
        ),
        (json!({"city": "Bonn", "pace": "fast"}), json!({}), rendered("Bonn  fast")),
    ] {
        let params = json!({"name": "trip", "arguments": arguments, "inputResponses": responses});
        assert_eq!(get(&replica, &key, Some(FORM), params.clone()).await, expected, "{params}");
        // What is returned counts, no matter what the client declares now.
        assert_eq!(get(&replica, &key, None, params.clone()).await, expected, "{params}");
    }
}

#[tokio::test]
async fn absent_and_invalid_values_are_asked_for_again() {
    let (_database, replica) = gateway().await;
    let key = agent(&replica).await;
    for responses in [
        json!({}),
        json!({"other": {"action": "accept", "content": {"city": "Bonn", "pace": "fast"}}}),
        json!({"arguments": {"action": "accept"}}),
        accepted(&json!({})),
        accepted(&json!({"city": "Bonn"})),
        accepted(&json!({"City": "Bonn", "pace": "fast"})),
        accepted(&json!({"city": "Bonn", "pace": null})),
        accepted(&json!({"city": 5, "pace": "fast"})),
        accepted(&json!({"city": true, "pace": "fast"})),
        accepted(&json!({"city": ["Bonn"], "pace": "fast"})),
        accepted(&json!({"city": {"a": "Bonn"}, "pace": "fast"})),
        accepted(&json!({"city": "Bonn", "pace": "hasty"})),
    ] {
        let params = json!({"name": "trip", "inputResponses": responses});
        // Also for what was valid: a client returns the values of the last form alone.
        assert_eq!(get(&replica, &key, Some(FORM), params).await, asked_for_both(), "{responses}");
    }
    let params = json!({"name": "trip", "inputResponses": accepted(&json!({"city": "Bonn"}))});
    assert_eq!(get(&replica, &key, None, params).await, missing(&["pace"]));
}

#[tokio::test]
async fn invalid_requests_for_a_prompt_are_refused() {
    let (_database, replica) = gateway().await;
    let key = agent(&replica).await;
    let response = "params.inputResponses.arguments";
    let action = format!("{response}.action must be accept, decline or cancel");
    let content = format!("{response}.content must be an object");
    let state = "params.requestState is not one that the server sent: it sends none";
    let declined = json!({"arguments": {"action": "decline"}});
    let many: serde_json::Map<_, _> = (0..1_025).map(|n| (format!("k{n}"), json!("v"))).collect();
    let cases = [
        // The prompt and its arguments are checked first.
        (json!({"name": "none", "inputResponses": declined}), "unknown prompt: none"),
        (json!({"name": "none", "requestState": "s"}), "unknown prompt: none"),
        (json!({"name": "trip", "arguments": {"x": "1"}, "inputResponses": declined}), "unknown argument: x"),
        (json!({"name": "trip", "arguments": {"x": "1"}, "requestState": ""}), "unknown argument: x"),
        (json!({"name": "trip", "arguments": {"x": "1"}}), "unknown argument: x"),
        (
            json!({"name": "trip", "arguments": {"pace": "hasty"}, "inputResponses": declined}),
            "argument pace: expected one of its completions, found `hasty`",
        ),
        (
            json!({"name": "trip", "arguments": {"city": 5}, "inputResponses": accepted(&json!({"city": "Bonn"}))}),
            "params.arguments must be an object whose members are strings",
        ),
        (json!({"name": "trip", "requestState": "s"}), state),
        (json!({"name": "trip", "requestState": ""}), state),
        (json!({"name": "trip", "requestState": null}), state),
        (json!({"name": "trip", "requestState": {}, "inputResponses": declined}), state),
        (json!({"name": "trip", "inputResponses": null}), "params.inputResponses must be an object"),
        (json!({"name": "trip", "inputResponses": []}), "params.inputResponses must be an object"),
        (json!({"name": "trip", "inputResponses": "x"}), "params.inputResponses must be an object"),
        (
            json!({"name": "trip", "inputResponses": {"arguments": null}}),
            "params.inputResponses.arguments must be an object",
        ),
        (
            json!({"name": "trip", "inputResponses": {"arguments": [declined]}}),
            "params.inputResponses.arguments must be an object",
        ),
        (json!({"name": "trip", "inputResponses": {"arguments": {}}}), &action),
        (json!({"name": "trip", "inputResponses": {"arguments": {"action": null}}}), &action),
        (json!({"name": "trip", "inputResponses": {"arguments": {"action": "Accept"}}}), &action),
        (json!({"name": "trip", "inputResponses": {"arguments": {"content": {"city": "Bonn"}}}}), &action),
        (
            json!({"name": "trip", "inputResponses": declined}),
            "the form for the missing arguments was declined",
        ),
        (
            json!({"name": "trip", "inputResponses": {"arguments": {"action": "cancel", "content": {"city": "Bonn"}}}}),
            "the form for the missing arguments was cancelled",
        ),
        // Also where nothing is missing.
        (
            json!({"name": "trip", "arguments": {"city": "Bonn", "pace": "fast"}, "inputResponses": declined}),
            "the form for the missing arguments was declined",
        ),
        (json!({"name": "trip", "inputResponses": accepted(&Value::Null)}), &content),
        (json!({"name": "trip", "inputResponses": accepted(&json!(["Bonn"]))}), &content),
        (
            json!({"name": "trip", "inputResponses": accepted(&many.into())}),
            "params.inputResponses.arguments.content has more than 1024 members",
        ),
    ];
    assert!(cases.len() >= 25);
    for (params, wrong) in cases {
        for elicitation in [Some(FORM), None] {
            let answer = get(&replica, &key, elicitation, params.clone()).await;
            assert_eq!(answer, error(200, "7", -32602, "invalid_params", wrong), "{params}");
        }
    }
}

#[tokio::test]
async fn returned_values_have_the_limits_of_arguments() {
    let (_database, replica) = gateway().await;
    let key = agent(&replica).await;
    let long = "x".repeat(3 << 20);
    let given = json!({"name": "trip", "arguments": {"city": long, "pace": "fast"}});
    let content = json!({"city": long, "pace": "fast"});
    let returned = json!({"name": "trip", "inputResponses": accepted(&content)});
    let expected = get(&replica, &key, Some(FORM), given).await;
    assert_eq!(expected["body"]["error"]["code"], -32602, "{expected}");
    assert_eq!(get(&replica, &key, Some(FORM), returned).await, expected);
}

#[tokio::test]
async fn hidden_prompt_is_answered_like_an_unknown_one() {
    let (_database, replica) = gateway().await;
    let key = agent(&replica).await;
    let mut prompt = replica.admin("GET", "/agents/a/prompts/trip", None).await.json();
    prompt["labels"] = json!(["team"]);
    assert_eq!(replica.admin("PUT", "/agents/a/prompts/trip", Some(prompt)).await.status, 200);
    let content = json!({"city": "Bonn", "pace": "fast"});
    for more in [
        json!({}),
        json!({"arguments": {"x": "1"}}),
        json!({"inputResponses": accepted(&content)}),
        json!({"inputResponses": null}),
        json!({"requestState": "s"}),
    ] {
        let mut params = more;
        params["name"] = json!("trip");
        let unknown = error(200, "7", -32602, "invalid_params", "unknown prompt: trip");
        assert_eq!(get(&replica, &key, Some(FORM), params.clone()).await, unknown, "{params}");
    }
}

#[tokio::test]
async fn asking_is_recorded_and_is_no_error() {
    let (_database, replica) = gateway().await;
    let key = agent(&replica).await;
    let content = json!({"city": "Bonn", "pace": "fast"});
    get(&replica, &key, Some(FORM), json!({"name": "trip"})).await;
    get(&replica, &key, Some(FORM), json!({"name": "trip", "inputResponses": accepted(&content)})).await;
    get(&replica, &key, None, json!({"name": "trip"})).await;
    let path = "/audit?agent=a&method=prompts/get";
    let outcomes = eventually_some("three rows", async || {
        let items = replica.admin("GET", path, None).await.json()["items"].take();
        let items = items.as_array().unwrap().clone();
        let outcome = |row: &Value| (row["subject"].clone(), row["outcome"].clone());
        (items.len() == 3).then(|| items.iter().rev().map(outcome).collect::<Vec<_>>())
    });
    let expected = ["input_required", "ok", "invalid_params"].map(|name| (json!("trip"), json!(name)));
    assert_eq!(outcomes.await, expected);
    let asked = replica.admin("GET", &format!("{path}&outcome=input_required"), None).await.json();
    assert_eq!(asked["items"].as_array().map(Vec::len), Some(1));
    let usage = eventually_some("usage of three calls", async || {
        let usage = replica.admin("GET", "/agents/a/usage?bucket=day", None).await.json();
        (usage.to_string().contains(r#""calls":3"#)).then_some(usage)
    });
    let usage = usage.await.to_string();
    assert!(usage.contains(r#""errors":1"#), "{usage}");
    let labels = r#"waggle_requests_total{method="prompts/get",era="modern",outcome="input_required"}"#;
    assert!((replica.metric(labels).await - 1.0).abs() < f64::EPSILON);
}
