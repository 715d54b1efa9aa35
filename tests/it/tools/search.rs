//! The tools `search` and `fetch`: whole answers in every revision, labels, limits, costs, and the audit log.

use serde_json::{Value, json};
use waggle::model::system::FailPoint;

use super::{Agent, MODERN, REVISIONS, said, shown, text};
use crate::revisions::Schema;
use crate::support::app::{Builder, encode};
use crate::support::cluster::database;
use crate::support::faults::FaultScript;
use crate::support::wait::eventually;

async fn furnished(settings: &[(&str, &str)]) -> Agent {
    let agent = Agent::with(json!(["search"]), settings).await;
    let body = json!({
        "name": "refunds", "title": "Refund policy", "mimeType": "text/markdown",
        "contents": [{"text": "# Money comes back\n"}, {"text": "after 14 days."}, {"blob": "AAH/"}],
    });
    agent.put("docs://refunds", body).await;
    let template = json!({"name": "orders", "description": "Refunds of a day", "template": "On {{ day }}"});
    let path = format!("/agents/a/templates?uriTemplate={}", encode("orders://{day}"));
    assert_eq!(agent.replica.admin("PUT", &path, Some(template)).await.status, 201);
    let messages = json!([said(text("Review it.")), {"role": "assistant", "content": text("Yes.")}]);
    agent.prompt("review", json!({"description": "Reviews a refund", "messages": messages})).await;
    let arguments = json!([{"name": "who", "required": true}]);
    agent.prompt("greet", json!({"arguments": arguments, "messages": [said(text("{{ who }}"))]})).await;
    agent
}

/// The object that a result shows, after the comparison of its two forms.
fn object(result: &Value, revision: &str) -> Value {
    let said = result["content"][0]["text"].as_str().unwrap();
    let object: Value = serde_json::from_str(said).unwrap();
    assert_eq!(result["content"], json!([text(said)]));
    assert_eq!(result.get("structuredContent"), (revision >= "2025-06-18").then_some(&object), "{revision}");
    assert_eq!(result.get("isError"), None);
    object
}

async fn ids(agent: &Agent, key: &str, query: &str) -> Vec<String> {
    let params = json!({"name": "search", "arguments": {"query": query}});
    let found = agent.ask(key, "2025-11-25", "tools/call", params).await.json();
    let results = found["result"]["structuredContent"]["results"].as_array().unwrap().iter();
    results.map(|result| result["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn search_and_fetch_answer_in_every_revision() {
    let agent = furnished(&[]).await;
    for revision in REVISIONS {
        let schema = Schema::of(revision);
        let call = async |tool: &str, arguments: Value| {
            let result = agent.result_in(revision, tool, arguments).await;
            schema.check("CallToolResult", &result);
            object(&result, revision)
        };
        let found = call("search", json!({"query": "refund"})).await;
        let result =
            |id: &str, title: &str, text: &str| json!({"id": id, "title": title, "url": id, "text": text});
        let expected = [
            result("docs://refunds", "Refund policy", "# Money comes back"),
            result("prompt:review", "review", "Reviews a refund"),
            result("orders://{day}", "orders", "Refunds of a day"),
        ];
        assert_eq!(found, json!({"results": expected}), "{revision}");
        assert_eq!(call("search", json!({"query": "nowhere"})).await, json!({"results": []}));
        // The second answer is the cached result of the first.
        for _ in 0..2 {
            let fetched = call("fetch", json!({"id": "docs://refunds"})).await;
            assert_eq!(
                fetched,
                json!({
                    "id": "docs://refunds", "title": "Refund policy", "url": "docs://refunds",
                    "text": "# Money comes back\nafter 14 days.", "metadata": {"mimeType": "text/markdown"},
                })
            );
            let fetched = call("fetch", json!({"id": "orders://monday"})).await;
            let uri = "orders://monday";
            let expected =
                json!({"id": uri, "title": "orders", "text": "On monday", "url": uri, "metadata": {}});
            assert_eq!(fetched, expected);
            let fetched = call("fetch", json!({"id": "prompt:review"})).await;
            let (id, said) = ("prompt:review", "Review it.\n\nYes.");
            let expected = json!({"id": id, "title": "review", "text": said, "url": id, "metadata": {}});
            assert_eq!(fetched, expected);
            let fetched = call("fetch", json!({"id": "orders://{day}"})).await;
            let usage = "Refunds of a day\n\nThis is a template of URIs: replace each {variable} of orders://{day} by a \
                         value, and fetch the URI.";
            let (id, title) = ("orders://{day}", "orders");
            assert_eq!(fetched, json!({"id": id, "title": title, "text": usage, "url": id, "metadata": {}}));
        }
    }
}

#[tokio::test]
async fn template_is_named_by_the_iri_that_it_was_registered_as() {
    let agent = Agent::new(json!(["search"])).await;
    let (iri, uri) = ("x:天气/{city}", "x:%E5%A4%A9%E6%B0%94/{city}");
    let path = format!("/agents/a/templates?uriTemplate={}", encode(iri));
    let body =
        json!({"name": "weather", "template": "{{ city }}", "completions": {"city": ["Oslo", "Paris"]}});
    assert_eq!(agent.replica.admin("PUT", &path, Some(body)).await.status, 201);
    for text in [iri, uri] {
        let reference = json!({"type": "ref/resource", "uri": text});
        let params = json!({"ref": reference, "argument": {"name": "city", "value": "o"}});
        let completed = agent.ask(&agent.key, "2025-11-25", "completion/complete", params).await.json();
        assert_eq!(completed["result"]["completion"]["values"], json!(["Oslo"]), "{text}");
        let fetched = object(&agent.result("fetch", json!({"id": text})).await, "2025-11-25");
        assert_eq!((&fetched["id"], &fetched["title"]), (&json!(uri), &json!("weather")), "{text}");
    }
}

#[tokio::test]
async fn fetch_answers_what_search_found_where_prompts_and_uris_look_alike() {
    let agent = Agent::new(json!(["search"])).await;
    agent.put("prompt:memo", json!({"name": "memo", "contents": [{"text": "of the resource"}]})).await;
    agent.put("uri:prompt:memo", json!({"name": "memo", "contents": [{"text": "of the other"}]})).await;
    agent.prompt("memo", json!({"messages": [said(text("of the prompt"))]})).await;
    let found = object(&agent.result_in(MODERN, "search", json!({"query": "memo"})).await, MODERN);
    let mut fetched = Vec::new();
    for result in found["results"].as_array().unwrap() {
        let got = agent.result_in(MODERN, "fetch", json!({"id": result["id"]})).await;
        let got = object(&got, MODERN);
        assert_eq!((&got["id"], &got["url"]), (&result["id"], &result["url"]));
        fetched.push(json!([result["id"], result["url"], got["text"]]));
    }
    fetched.sort_by_key(Value::to_string);
    let expected = [
        json!(["prompt:memo", "prompt:memo", "of the prompt"]),
        json!(["uri:prompt:memo", "prompt:memo", "of the resource"]),
        json!(["uri:uri:prompt:memo", "uri:prompt:memo", "of the other"]),
    ];
    assert_eq!(fetched, expected);
    let rows = async || {
        let answer = agent.replica.admin("GET", "/audit?agent=a&method=tools/call", None).await.json();
        let rows = answer["items"].as_array().unwrap().iter();
        rows.map(|row| row["subject"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually("the calls are audited", async || {
        let mut rows = rows().await;
        rows.sort_unstable();
        rows == ["memo", "prompt:memo", "search", "uri:prompt:memo"]
    })
    .await;
}

#[tokio::test]
async fn search_and_fetch_show_nothing_that_labels_hide() {
    let agent = furnished(&[]).await;
    let body = |labels: Value| json!({"name": "secret", "contents": [{"text": "refund codeword"}], "labels": labels});
    agent.put("x:hidden", body(json!(["team"]))).await;
    let prompt = json!({"title": "codeword", "messages": [said(text("p"))], "labels": ["team"]});
    agent.prompt("hidden", prompt).await;
    let made = json!({"scopes": ["mcp"], "labels": ["team"]});
    let made = agent.replica.admin("POST", "/agents/a/keys", Some(made)).await.json();
    let team = made["key"].as_str().unwrap();
    // In both orders: nothing that was cached for one caller answers the other.
    for _ in 0..2 {
        assert_eq!(ids(&agent, team, "codeword").await, ["prompt:hidden", "x:hidden"]);
        assert!(ids(&agent, &agent.key, "codeword").await.is_empty());
        assert_eq!(ids(&agent, team, "refund").await.len(), 4);
        assert_eq!(ids(&agent, &agent.key, "refund").await.len(), 3);
        for (hidden, unknown) in [("x:hidden", "x:absent"), ("prompt:hidden", "prompt:absent")] {
            let fetch = async |key: &str, id: &str| {
                let params = json!({"name": "fetch", "arguments": {"id": id}});
                agent.ask(key, "2025-11-25", "tools/call", params).await.json()
            };
            assert_eq!(fetch(team, hidden).await["result"].get("isError"), None);
            let refused = fetch(&agent.key, hidden).await.to_string();
            let absent = fetch(&agent.key, unknown).await.to_string();
            assert_eq!(refused, absent.replace("absent", "hidden"), "{hidden}");
        }
    }
    // A change of labels alone is followed at once.
    agent.put("x:hidden", body(json!([]))).await;
    assert_eq!(ids(&agent, &agent.key, "codeword").await, ["x:hidden"]);
    agent.put("x:hidden", body(json!(["other"]))).await;
    assert!(ids(&agent, &agent.key, "codeword").await.is_empty());
    assert_eq!(ids(&agent, team, "codeword").await, ["prompt:hidden"]);
}

#[tokio::test]
async fn hidden_definitions_change_neither_ranks_nor_the_number_of_results() {
    let agent = Agent::new(json!(["search"])).await;
    let put = async |uri: &str, name: &str, text: &str, labels: Value| {
        let body = json!({"name": name, "contents": [{"text": text}], "labels": labels});
        agent.put(uri, body).await;
    };
    // `alpha` is the rarer word, so that the name with it counts more.
    put("x:1", "beta", "alpha", json!([])).await;
    put("x:2", "alpha", "beta", json!([])).await;
    put("x:3", "beta", "other", json!([])).await;
    put("x:4", "other", "other", json!([])).await;
    let found = async |query: &str| ids(&agent, &agent.key, query).await;
    assert_eq!(found("alpha beta").await, ["x:2", "x:1"]);
    assert_eq!(found("alpha").await, ["x:2", "x:1"]);
    // More than there are results, all of which would be better ones.
    for number in 0..25 {
        put(&format!("x:hidden/{number}"), "alpha", "alpha", json!(["team"])).await;
    }
    assert_eq!(found("alpha beta").await, ["x:2", "x:1"]);
    assert_eq!(found("alpha").await, ["x:2", "x:1"]);
    let owner = agent.replica.admin("GET", "/agents/a/search?q=alpha", None).await.json();
    assert_eq!(owner["items"].as_array().unwrap().len(), 20);
}

#[tokio::test]
async fn long_texts_are_cut_and_results_fit_the_limit() {
    let agent = furnished(&[("WAGGLE_LIMITS__TOOL_RESULT_BYTES", "1024")]).await;
    let long = "é".repeat(1_000);
    agent.put("x:long", json!({"name": "long", "contents": [{"text": long}]})).await;
    let fetched = object(&agent.result_in(MODERN, "fetch", json!({"id": "x:long"})).await, MODERN);
    let metadata = json!({"truncated": true, "textBytes": 2_000});
    assert_eq!((&fetched["text"], &fetched["metadata"]), (&json!("é".repeat(512)), &metadata));
    for number in 0..10 {
        let body = json!({"name": format!("many {number}"), "description": "d".repeat(150), "contents": []});
        agent.put(&format!("x:{number}"), body).await;
    }
    let found = object(&agent.result_in(MODERN, "search", json!({"query": "many"})).await, MODERN);
    assert!(found.to_string().len() <= 1_024);
    let kept: Vec<_> = found["results"].as_array().unwrap().iter().map(|found| found["id"].clone()).collect();
    assert_eq!(kept, ["x:0", "x:1", "x:2", "x:3", "x:4"]);
}

#[tokio::test]
async fn bad_searches_have_exact_answers() {
    let agent = furnished(&[]).await;
    let length = "invalid_params: arguments.query must have 1 to 256 characters";
    for (tool, arguments, fault) in [
        ("search", json!({}), "invalid_params: arguments.query is required"),
        ("search", json!({"query": ""}), length),
        ("search", json!({"query": "京".repeat(257)}), length),
        ("search", json!({"query": 1}), "invalid_params: arguments.query must be a string"),
        ("search", json!({"query": null}), "invalid_params: arguments.query must be a string"),
        (
            "search",
            json!({"query": "a", "top": 5}),
            "invalid_params: arguments has an unknown member `top`; expected `query`",
        ),
        ("fetch", json!({}), "invalid_params: arguments.id is required"),
        ("fetch", json!({"id": ""}), "invalid_params: arguments.id is not an absolute URI of RFC 3986"),
        (
            "fetch",
            json!({"id": "refunds"}),
            "invalid_params: arguments.id is not an absolute URI of RFC 3986",
        ),
        ("fetch", json!({"id": "x:none"}), "resource_not_found: resource not found: x:none"),
        ("fetch", json!({"id": "prompt:none"}), "resource_not_found: resource not found: prompt:none"),
        ("fetch", json!({"id": "prompt:greet"}), "invalid_params: missing argument: who"),
    ] {
        assert_eq!(agent.result(tool, arguments.clone()).await, shown(fault), "{tool} {arguments}");
    }
    for tool in ["search", "fetch"] {
        let params = json!({"name": tool, "arguments": []});
        let answer = agent.ask(&agent.key, "2025-11-25", "tools/call", params).await.json();
        assert_eq!(answer["error"]["message"], "params.arguments must be an object");
    }
}

#[tokio::test]
async fn models_are_told_that_an_index_is_built() {
    let database = database().await;
    let faults = FaultScript::new();
    let replica = Builder::new(&database)
        .fault_injector(faults.clone())
        .set("WAGGLE_SEARCH__WAIT_MS", 200)
        .start()
        .await;
    let key = replica.acme("a").await;
    let agent = Agent { _database: database, replica, key };
    assert_eq!(agent.patch(json!({"tools": ["search"]})).await.status, 200);
    agent.replica.put("a", "x:1", "alpha").await;
    assert_eq!(agent.names(&agent.key).await, ["search", "fetch"]);
    let held = faults.hold(FailPoint::Load);
    let search = async || agent.result("search", json!({"query": "alpha"})).await;
    let during = tokio::join!(search(), held.meanwhile(search()));
    let expected = shown("unavailable: the gateway is overloaded or shutting down; try again");
    assert_eq!(during, (expected.clone(), expected));
    eventually("the index is built", async || search().await.get("isError").is_none()).await;
    assert_eq!(ids(&agent, &agent.key, "alpha").await, ["x:1"]);
}

#[tokio::test]
async fn search_has_a_cost_and_is_audited() {
    let settings = [
        ("WAGGLE_COSTS__SEARCH", "8"),
        ("WAGGLE_LIMITS__KEY_PER_SECOND", "1"),
        ("WAGGLE_LIMITS__KEY_BURST", "10"),
    ];
    let agent = furnished(&settings).await;
    let params =
        |tool: &str, argument: &str, value: &str| json!({"name": tool, "arguments": {argument: value}});
    let call =
        async |params: Value| agent.ask(&agent.key, "2025-11-25", "tools/call", params).await.status.as_u16();
    assert_eq!(call(params("search", "query", "refund")).await, 200);
    assert_eq!(call(params("search", "query", "refund")).await, 429);
    assert_eq!(call(params("fetch", "id", "docs://refunds")).await, 200);
    assert_eq!(call(params("fetch", "id", "prompt:review")).await, 200);
    let rows = async || {
        let answer = agent.replica.admin("GET", "/audit?agent=a&method=tools/call", None).await.json();
        let rows = answer["items"].as_array().unwrap().iter();
        rows.map(|row| json!([row["subject"], row["outcome"]])).collect::<Vec<_>>()
    };
    let expected = [json!(["review", "ok"]), json!(["docs://refunds", "ok"]), json!(["search", "ok"])];
    eventually("the calls are audited", async || {
        let mut rows = rows().await;
        rows.retain(|row| row[1] == "ok");
        rows == expected
    })
    .await;
}
