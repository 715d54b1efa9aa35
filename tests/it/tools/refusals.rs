//! Calls of tools that are refused: by an error, or by a result that shows the fault to a model.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Agent, MODERN, said, shown, text};

#[tokio::test]
async fn bad_calls_have_exact_answers() {
    let agent = Agent::new(json!(["resources", "prompts", "prompt_tools"])).await;
    agent.replica.put("a", "x:text", "one").await;
    let arguments = json!([{"name": "who", "required": true}, {"name": "how"}]);
    agent.prompt("greet", json!({"arguments": arguments, "messages": [said(text("{{ who }}"))]})).await;
    agent.prompt("fetch", json!({"messages": [said(text("p"))]})).await;
    let embedded = json!({"type": "resource", "resource": {"uri": "x:gone"}});
    agent.prompt("broken", json!({"messages": [said(embedded)]})).await;
    let long = "n".repeat(65);
    for (params, message) in [
        (json!({}), "params.name is required"),
        (json!({"name": 1}), "params.name must be a string"),
        (json!({"name": null}), "params.name must be a string"),
        (json!({"name": ""}), "unknown tool: "),
        (json!({"name": "hammer"}), "unknown tool: hammer"),
        (json!({"name": "search"}), "unknown tool: search"),
        (json!({"name": "fetch"}), "unknown tool: fetch"),
        (json!({"name": "Read_Resource"}), "unknown tool: Read_Resource"),
        (json!({"name": "read_resource "}), "unknown tool: read_resource "),
        (json!({"name": long}), &format!("unknown tool: {long}")),
        (json!({"name": "hammer", "arguments": []}), "unknown tool: hammer"),
        (json!({"name": "read_resource", "arguments": []}), "params.arguments must be an object"),
        (json!({"name": "read_resource", "arguments": null}), "params.arguments must be an object"),
        (json!({"name": "read_resource", "arguments": "x:text"}), "params.arguments must be an object"),
        (json!({"name": "list_resources", "arguments": 5}), "params.arguments must be an object"),
        (json!({"name": "greet", "arguments": true}), "params.arguments must be an object"),
    ] {
        let answer = agent.ask(&agent.key, "2025-11-25", "tools/call", params.clone()).await;
        let error = json!({"code": -32602, "message": message, "data": {"code": "invalid_params"}});
        let expected = json!({"jsonrpc": "2.0", "id": 7, "error": error});
        assert_eq!((answer.status, answer.json()), (StatusCode::OK, expected), "{params}");
    }
    let no_uri = "arguments.uri is not an absolute URI of RFC 3986";
    let far = format!("x:{}", "y".repeat(2_047));
    for (tool, arguments, fault) in [
        ("read_resource", json!({}), "arguments.uri is required"),
        ("read_resource", json!({"uri": 1}), "arguments.uri must be a string"),
        ("read_resource", json!({"uri": null}), "arguments.uri must be a string"),
        ("read_resource", json!({"uri": ""}), no_uri),
        ("read_resource", json!({"uri": "text"}), no_uri),
        ("read_resource", json!({"uri": "x: y"}), no_uri),
        ("read_resource", json!({"uri": far}), "arguments.uri is longer than 2048 bytes"),
        (
            "read_resource",
            json!({"uri": "x:text", "url": ""}),
            "arguments has an unknown member `url`; expected `uri` or `offset`",
        ),
        (
            "read_resource",
            json!({"offset": -1, "uri": "x:text"}),
            "arguments.offset must be an integer from 0 on, found -1",
        ),
        (
            "read_resource",
            json!({"offset": "1", "uri": "x:text"}),
            "arguments.offset must be an integer from 0 on, found \"1\"",
        ),
        (
            "read_resource",
            json!({"offset": null, "uri": "x:text"}),
            "arguments.offset must be an integer from 0 on, found null",
        ),
        (
            "read_resource",
            json!({"offset": 1.5, "uri": "x:text"}),
            "arguments.offset must be an integer from 0 on, found 1.5",
        ),
        (
            "read_resource",
            json!({"offset": 4, "uri": "x:text"}),
            "arguments.offset is 4, after the end of the text at 3",
        ),
        ("list_resources", json!({"limit": 5}), "arguments has an unknown member `limit`; expected `cursor`"),
        ("list_resources", json!({"cursor": null}), "arguments.cursor must be a string"),
        ("list_resources", json!({"cursor": ""}), "cursor is not valid for this list"),
        ("list_prompts", json!({"cursor": "no cursor"}), "cursor is not valid for this list"),
        ("list_prompts", json!({"cursor": []}), "arguments.cursor must be a string"),
        ("get_prompt", json!({}), "arguments.name is required"),
        ("get_prompt", json!({"name": ""}), "unknown prompt: "),
        ("get_prompt", json!({"name": "none"}), "unknown prompt: none"),
        ("get_prompt", json!({"name": "greet", "arguments": []}), "arguments.arguments must be an object"),
        ("get_prompt", json!({"name": "greet", "arguments": null}), "arguments.arguments must be an object"),
        (
            "get_prompt",
            json!({"name": "greet", "arguments": {"who": 1}}),
            "arguments.arguments must be an object whose members are strings",
        ),
        ("greet", json!({"who": null}), "arguments must be an object whose members are strings"),
        ("greet", json!({"who": {"name": "you"}}), "arguments must be an object whose members are strings"),
    ] {
        let expected = shown(&format!("invalid_params: {fault}"));
        assert_eq!(agent.result(tool, arguments.clone()).await, expected, "{tool} {arguments}");
    }
    // As `prompts/get` refuses them.
    for arguments in [json!({}), json!({"how": "x"}), json!({"who": "you", "where": "here"})] {
        let params = json!({"name": "greet", "arguments": arguments});
        let refused = agent.ask(&agent.key, "2025-11-25", "prompts/get", params.clone()).await.json();
        let expected = shown(&format!("invalid_params: {}", refused["error"]["message"].as_str().unwrap()));
        assert_eq!(agent.result("get_prompt", params).await, expected);
        assert_eq!(agent.result("greet", arguments).await, expected);
    }
    let unknown = |uri: &str| shown(&format!("resource_not_found: resource not found: {uri}"));
    assert_eq!(agent.result("read_resource", json!({"uri": "x:none"})).await, unknown("x:none"));
    assert_eq!(agent.result("broken", json!({})).await, unknown("x:gone"));
    let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"greet","arguments":{"who":"a","who":"b"}}}"#;
    let headers = [("x-agent-api-key", agent.key.as_str()), ("content-type", "application/json")];
    let twice = agent.replica.http.send("POST", "/a/mcp", &headers, body).await.json();
    assert_eq!(twice["result"], shown("invalid_params: arguments has a member twice"));
    let call = |id: i32, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    let batch = json!([
        call(1, json!({"name": "read_resource", "arguments": {"uri": "x:none"}})),
        call(2, json!({"name": "hammer"})),
    ]);
    let batch = agent.replica.http.send("POST", "/a/mcp", &headers, batch.to_string()).await.json();
    let error =
        json!({"code": -32602, "message": "unknown tool: hammer", "data": {"code": "invalid_params"}});
    let expected = json!([
        {"jsonrpc": "2.0", "id": 1, "result": unknown("x:none")},
        {"jsonrpc": "2.0", "id": 2, "error": error},
    ]);
    assert_eq!(batch, expected);
    let modern = agent.result_in(MODERN, "read_resource", json!({"uri": "x:none"})).await;
    let mut expected = unknown("x:none");
    expected["resultType"] = json!("complete");
    expected["_meta"] = modern["_meta"].clone();
    assert_eq!(modern, expected);
}

#[tokio::test]
async fn only_enabled_tools_are_listed_and_called() {
    let agent = Agent::new(json!([])).await;
    agent.prompt("p", json!({"messages": [said(text("p"))]})).await;
    let all = [
        ("search", &["search", "fetch"][..]),
        ("resources", &["list_resources", "read_resource"][..]),
        ("prompts", &["list_prompts", "get_prompt"][..]),
        ("prompt_tools", &["p"][..]),
    ];
    assert!(agent.names(&agent.key).await.is_empty());
    for (set, enabled) in all {
        agent.patch(json!({"tools": [set]})).await;
        assert_eq!(agent.names(&agent.key).await, enabled);
        for tool in all.iter().flat_map(|(_, tools)| *tools) {
            let answer = agent.ask(&agent.key, MODERN, "tools/call", json!({"name": tool})).await.json();
            assert_eq!(answer.get("result").is_some(), enabled.contains(tool), "{set} {tool}: {answer}");
        }
    }
}

#[tokio::test]
async fn tools_show_nothing_that_labels_hide() {
    let agent = Agent::new(json!(["resources", "prompts", "prompt_tools"])).await;
    agent.put("x:open", json!({"name": "n", "contents": [{"text": "open"}]})).await;
    agent.put("x:hidden", json!({"name": "n", "contents": [{"text": "hidden"}], "labels": ["team"]})).await;
    agent.prompt("open", json!({"messages": [said(text("p"))]})).await;
    agent.prompt("hidden", json!({"messages": [said(text("p"))], "labels": ["team"]})).await;
    let body = json!({"scopes": ["mcp"], "labels": ["team"]});
    let made = agent.replica.admin("POST", "/agents/a/keys", Some(body)).await.json();
    let team = made["key"].as_str().unwrap();
    let fixed = ["list_resources", "read_resource", "list_prompts", "get_prompt"];
    // Twice, in both orders: nothing that was cached for one caller answers the other.
    for _ in 0..2 {
        assert_eq!(agent.names(team).await, [&fixed[..], &["hidden", "open"]].concat());
        assert_eq!(agent.names(&agent.key).await, [&fixed[..], &["open"]].concat());
        let call = async |key: &str, tool: &str, arguments: Value| {
            let params = json!({"name": tool, "arguments": arguments});
            agent.ask(key, "2025-11-25", "tools/call", params).await.json()
        };
        for (tool, hidden, unknown) in [
            ("read_resource", json!({"uri": "x:hidden"}), json!({"uri": "x:absent"})),
            ("get_prompt", json!({"name": "hidden"}), json!({"name": "absent"})),
        ] {
            assert_eq!(call(team, tool, hidden.clone()).await["result"].get("isError"), None);
            let refused = call(&agent.key, tool, hidden).await.to_string();
            let absent = call(&agent.key, tool, unknown).await.to_string();
            assert_eq!(refused, absent.replace("absent", "hidden"), "{tool}");
        }
        assert_eq!(call(team, "hidden", json!({})).await["result"]["content"], json!([text("p")]));
        let refused = call(&agent.key, "hidden", json!({})).await.to_string();
        assert_eq!(
            refused,
            call(&agent.key, "absent", json!({})).await.to_string().replace("absent", "hidden")
        );
        for (tool, member, expected) in
            [("list_resources", "resources", "x:open"), ("list_prompts", "prompts", "open")]
        {
            for (key, count) in [(team, 2), (agent.key.as_str(), 1)] {
                let listed = call(key, tool, json!({})).await["result"]["structuredContent"][member].clone();
                assert_eq!(listed.as_array().unwrap().len(), count, "{tool}: {listed}");
                assert!(listed.to_string().contains(expected));
            }
        }
    }
}
