//! Lists and calls of tools in every revision, each validated against its schema.

use serde_json::{Value, json};

use super::{Agent, MODERN, REVISIONS, said, text};
use crate::revisions::Schema;
use crate::support::app::encode;

async fn furnished() -> Agent {
    let agent = Agent::new(json!(["resources", "prompts", "prompt_tools"])).await;
    let parts = json!([
        {"uri": "x:two/1", "mimeType": "text/markdown", "text": "# hé"},
        {"mimeType": "image/png", "blob": "AAH/"},
        {"mimeType": "AUDIO/wav", "blob": "AAH/"},
        {"mimeType": "application/pdf", "blob": "AAH/"},
    ]);
    agent.put("x:many", json!({"name": "many", "contents": parts})).await;
    agent
        .put("x:text", json!({"name": "text", "mimeType": "text/plain", "contents": [{"text": "one"}]}))
        .await;
    let template = json!({"name": "t", "template": "for {{ who }}"});
    let path = format!("/agents/a/templates?uriTemplate={}", encode("t:{who}"));
    assert_eq!(agent.replica.admin("PUT", &path, Some(template)).await.status, 201);
    let icons = json!([{"src": "https://example.com/i.png"}]);
    let prompt = json!({
        "title": "Greet", "description": "Greets a person.", "icons": icons,
        "arguments": [
            {"name": "who", "title": "Who", "description": "A name", "required": true},
            {"name": "how", "completions": ["warmly", "briefly", "warmly"], "closed": true},
        ],
        "messages": [
            said(text("Hello {{ who }}!")),
            {"role": "assistant", "content": {"type": "audio", "data": "AAH/", "mimeType": "audio/wav"}},
        ],
    });
    agent.prompt("greet", prompt).await;
    agent.prompt("bare", json!({"messages": [said(text("Bare"))]})).await;
    // Neither can be a tool.
    agent.prompt("no.tool", json!({"messages": [said(text("p"))]})).await;
    agent.prompt("fetch", json!({"messages": [said(text("p"))]})).await;
    agent
}

/// A modern result has more members than a legacy one.
fn members(mut result: Value, cacheable: bool) -> Value {
    let object = result.as_object_mut().unwrap();
    if let Some(kind) = object.remove("resultType") {
        assert_eq!(kind, "complete");
        assert!(object.remove("_meta").is_some());
        assert_eq!(
            (object.remove("ttlMs"), object.remove("cacheScope")),
            match cacheable {
                true => (Some(json!(0)), Some(json!("private"))),
                false => (None, None),
            }
        );
    }
    result
}

#[tokio::test]
async fn tools_are_listed_in_the_members_of_each_revision() {
    let agent = furnished().await;
    for revision in REVISIONS {
        let listed = agent.ask(&agent.key, revision, "tools/list", json!({})).await.json()["result"].clone();
        Schema::of(revision).check("ListToolsResult", &listed);
        let listed = members(listed, true);
        assert_eq!(listed.as_object().unwrap().len(), 1, "{listed}");
        let tools = listed["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let fixed = ["list_resources", "read_resource", "list_prompts", "get_prompt"];
        assert_eq!(names, [&fixed[..], &["bare", "greet"]].concat(), "{revision}");
        let hints = json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false});
        for tool in tools {
            let name = tool["name"].as_str().unwrap();
            assert_eq!(tool["inputSchema"]["additionalProperties"], json!(false));
            assert_eq!(tool.get("annotations"), (revision >= "2025-03-26").then_some(&hints), "{revision}");
            let object = revision >= "2025-06-18" && name.starts_with("list_");
            assert_eq!(tool.get("outputSchema").is_some(), object, "{revision} {name}");
            let titled = revision >= "2025-06-18" && name != "bare";
            assert_eq!(tool.get("title").is_some(), titled, "{revision} {name}");
            if fixed.contains(&name) {
                assert!(tool["description"].as_str().unwrap().contains("Example of arguments: {"), "{name}");
            }
        }
        let mut greet = json!({
            "name": "greet", "description": "Greets a person.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "who": {"type": "string", "title": "Who", "description": "A name"},
                    "how": {"type": "string", "enum": ["warmly", "briefly"]},
                },
                "required": ["who"], "additionalProperties": false,
            },
        });
        if revision >= "2025-03-26" {
            greet["annotations"] = hints;
        }
        if revision >= "2025-06-18" {
            greet["title"] = json!("Greet");
        }
        if revision >= "2025-11-25" {
            greet["icons"] = json!([{"src": "https://example.com/i.png"}]);
        }
        assert_eq!(tools[5], greet, "{revision}");
    }
}

#[tokio::test]
async fn calls_are_answered_in_every_revision() {
    let agent = furnished().await;
    for revision in REVISIONS {
        let schema = Schema::of(revision);
        // The second answer is the cached result of the first.
        for _ in 0..2 {
            let call = async |tool: &str, arguments: Value| {
                let result = agent.result_in(revision, tool, arguments).await;
                schema.check("CallToolResult", &result);
                members(result, false)
            };
            let sound = json!({"type": "audio", "data": "AAH/", "mimeType": "AUDIO/wav"});
            let resource = |mime: &str| json!({"type": "resource", "resource": {"uri": "x:many", "mimeType": mime, "blob": "AAH/"}});
            let sound = if revision < "2025-03-26" { resource("AUDIO/wav") } else { sound };
            let image = json!({"type": "image", "data": "AAH/", "mimeType": "image/png"});
            let content = json!([text("# hé"), image, sound, resource("application/pdf")]);
            assert_eq!(call("read_resource", json!({"uri": "x:many"})).await, json!({"content": content}));
            for (uri, read) in [("x:text", "one"), ("t:you", "for you")] {
                let content = json!({"content": [text(read)]});
                assert_eq!(call("read_resource", json!({"uri": uri})).await, content, "{revision} {uri}");
            }
            assert_eq!(call("get_prompt", json!({"name": "bare"})).await, json!({"content": [text("Bare")]}));
            assert_eq!(call("bare", json!({})).await, json!({"content": [text("Bare")]}));
            let sound = if revision < "2025-03-26" {
                let resource = json!({"uri": "prompt-message:1", "mimeType": "audio/wav", "blob": "AAH/"});
                json!({"type": "resource", "resource": resource})
            } else {
                json!({"type": "audio", "data": "AAH/", "mimeType": "audio/wav"})
            };
            let greeting =
                json!({"content": [text("[user]"), text("Hello you!"), text("[assistant]"), sound]});
            let arguments = json!({"who": "you"});
            let got = call("get_prompt", json!({"name": "greet", "arguments": arguments})).await;
            assert_eq!(got, greeting, "{revision}");
            assert_eq!(call("greet", arguments).await, greeting, "{revision}");
            for (tool, methods) in [
                (
                    "list_resources",
                    &[("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")][..],
                ),
                ("list_prompts", &[("prompts/list", "prompts")][..]),
            ] {
                let mut object = json!({});
                for (method, member) in methods {
                    let listed = agent.ask(&agent.key, revision, method, json!({})).await.json();
                    object[member] = listed["result"][member].clone();
                }
                let result = call(tool, json!({})).await;
                let sent = result["content"][0]["text"].as_str().unwrap();
                assert_eq!(serde_json::from_str::<Value>(sent).unwrap(), object, "{revision}");
                let mut expected = json!({"content": [text(sent)]});
                if revision >= "2025-06-18" {
                    expected["structuredContent"] = object;
                }
                assert_eq!(result, expected, "{revision}");
            }
        }
    }
}

#[tokio::test]
async fn objects_match_their_output_schemas() {
    let agent = furnished().await;
    let listed = agent.ask(&agent.key, MODERN, "tools/list", json!({})).await.json();
    for tool in listed["result"]["tools"].as_array().unwrap() {
        let Some(schema) = tool.get("outputSchema") else { continue };
        let result = agent.result(tool["name"].as_str().unwrap(), json!({})).await;
        let validator = jsonschema::validator_for(schema).unwrap();
        assert!(validator.is_valid(&result["structuredContent"]), "{result}");
    }
}

#[tokio::test]
async fn audit_rows_name_what_a_tool_read() {
    let agent = furnished().await;
    for (tool, arguments) in [
        ("read_resource", json!({"uri": "x:text"})),
        ("read_resource", json!({"uri": "x:none"})),
        ("read_resource", json!({})),
        ("get_prompt", json!({"name": "bare"})),
        ("list_resources", json!({})),
        ("bare", json!({})),
        ("hammer", json!({})),
    ] {
        agent.ask(&agent.key, MODERN, "tools/call", json!({"name": tool, "arguments": arguments})).await;
    }
    let rows = async || {
        let audit = agent.replica.admin("GET", "/audit?agent=a&method=tools/call", None).await.json();
        let rows = audit["items"].as_array().unwrap().clone();
        let mut rows: Vec<_> =
            rows.iter().map(|row| (row["subject"].clone(), row["outcome"].clone())).collect();
        rows.sort_by_key(|row| format!("{row:?}"));
        rows
    };
    let mut expected = [
        ("x:text", "ok"),
        ("x:none", "resource_not_found"),
        ("read_resource", "invalid_params"),
        ("bare", "ok"),
        ("list_resources", "ok"),
        ("bare", "ok"),
        ("hammer", "invalid_params"),
    ]
    .map(|(subject, outcome)| (json!(subject), json!(outcome)));
    expected.sort_by_key(|row| format!("{row:?}"));
    crate::support::wait::eventually("the rows are written", async || rows().await.len() == 7).await;
    assert_eq!(rows().await, expected);
}
