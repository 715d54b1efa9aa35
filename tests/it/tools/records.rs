//! Rows of the audit log: a tool has the row of the method that it stands for, with what was read as its subject.

use serde_json::{Value, json};

use super::{Agent, MODERN, said, text};
use crate::support::wait::eventually_some;

/// What differs between two rows of the same caller.
const MEASURED: [&str; 9] =
    ["at", "chain", "seq", "previous", "hash", "requestId", "micros", "bytesIn", "bytesOut"];

/// The newest row of the log if it has this number of rows, without what is measured.
async fn row(agent: &Agent, count: usize) -> Value {
    eventually_some(&format!("{count} rows"), async || {
        let mut items =
            agent.replica.admin("GET", "/audit?agent=a&limit=500", None).await.json()["items"].take();
        let items = items.as_array_mut().unwrap();
        items.retain(|row| row["method"].as_str().is_some_and(|method| !method.contains("/admin/")));
        (items.len() == count).then(|| {
            let mut row = items[0].take();
            for member in MEASURED {
                assert!(row.as_object_mut().unwrap().remove(member).is_some(), "{member}");
            }
            row
        })
    })
    .await
}

#[tokio::test]
async fn row_of_a_tool_is_that_of_its_method() {
    let agent = Agent::new(json!(["search", "resources", "prompts", "prompt_tools"])).await;
    let labelled = |body: Value| {
        let mut body = body;
        body["labels"] = json!(["team"]);
        body
    };
    let page = json!({"name": "n", "contents": [{"text": "codeword"}]});
    agent.put("x:open", page.clone()).await;
    agent.put("x:hidden", labelled(page)).await;
    agent.prompt("open", json!({"messages": [said(text("p"))]})).await;
    agent.prompt("hidden", labelled(json!({"messages": [said(text("p"))]}))).await;
    let skill = json!({"files": [{"path": "SKILL.md", "text": "---\nname: s\ndescription: d\n---\n"}]});
    for (name, body) in [("s", skill.clone()), ("team%2Fs", labelled(skill))] {
        let put = agent.replica.admin("PUT", &format!("/agents/a/skills?path={name}"), Some(body)).await;
        assert_eq!(put.status, 201, "{}", put.text());
    }
    let mut count = 0;
    let mut ask = async |revision: &str, method: &str, params: Value| {
        agent.ask(&agent.key, revision, method, params).await;
        count += 1;
        row(&agent, count).await
    };
    for revision in ["2025-11-25", MODERN] {
        for uri in ["x:open", "x:hidden", "x:absent", "skill://s/SKILL.md", "skill://team/s/SKILL.md"] {
            let read = ask(revision, "resources/read", json!({"uri": uri})).await;
            assert_eq!((&read["subject"], &read["method"]), (&json!(uri), &json!("resources/read")));
            let due = |method: &str| {
                let mut row = read.clone();
                row["method"] = json!(method);
                row
            };
            for (tool, member) in [("read_resource", "uri"), ("fetch", "id")] {
                let params = json!({"name": tool, "arguments": {member: uri}});
                assert_eq!(ask(revision, "tools/call", params).await, due("tools/call"), "{tool} {uri}");
            }
            if uri.starts_with("skill:") {
                let mut got = due("skills/get");
                // Unknown skills are refused as parameters.
                got["outcome"] = if uri.contains("team") { json!("invalid_params") } else { json!("ok") };
                assert_eq!(ask(revision, "skills/get", json!({"uri": uri})).await, got);
                let directory = uri.strip_suffix("/SKILL.md").unwrap();
                got["method"] = json!("resources/directory/read");
                got["subject"] = json!(directory);
                let params = json!({"uri": directory});
                assert_eq!(ask(revision, "resources/directory/read", params).await, got);
            }
        }
        for name in ["open", "hidden", "absent"] {
            let mut due = ask(revision, "prompts/get", json!({"name": name})).await;
            assert_eq!((&due["subject"], &due["method"]), (&json!(name), &json!("prompts/get")));
            due["method"] = json!("tools/call");
            for params in [
                json!({"name": name, "arguments": {}}),
                json!({"name": "get_prompt", "arguments": {"name": name}}),
            ] {
                assert_eq!(ask(revision, "tools/call", params.clone()).await, due, "{params}");
            }
            // An id that nothing is found under names no method.
            let fetched = ask(
                revision,
                "tools/call",
                json!({"name": "fetch", "arguments": {"id": format!("prompt:{name}")}}),
            )
            .await;
            if name != "open" {
                due["outcome"] = json!("resource_not_found");
            }
            assert_eq!(fetched, due, "fetch {name}");
        }
        let mut due = ask(revision, "resources/list", json!({})).await;
        assert_eq!((&due["subject"], &due["method"]), (&Value::Null, &json!("resources/list")));
        due["method"] = json!("tools/call");
        for (tool, arguments) in [
            ("search", json!({"query": "codeword"})),
            ("list_resources", json!({})),
            ("list_prompts", json!({})),
        ] {
            due["subject"] = json!(tool);
            let params = json!({"name": tool, "arguments": arguments});
            assert_eq!(ask(revision, "tools/call", params).await, due, "{tool}");
        }
    }
}
