//! Tools for clients that know only tools: lists and calls in every revision, limits, labels, notifications.

mod calls;
mod limits;
mod notifications;
mod records;
mod refusals;
mod search;

use serde_json::{Value, json};

use crate::support::app::{Builder, Replica, resource};
use crate::support::cluster::{Database, database};
use crate::support::http::Answer;

const MODERN: &str = "2026-07-28";
const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN];

/// An agent `a` with tools.
struct Agent {
    _database: Database,
    replica: Replica,
    key: String,
}

impl Agent {
    async fn new(tools: Value) -> Self {
        Self::with(tools, &[]).await
    }

    async fn with(tools: Value, settings: &[(&str, &str)]) -> Self {
        let database = database().await;
        let mut builder = Builder::new(&database);
        for (name, value) in settings {
            builder = builder.set(name, value);
        }
        let replica = builder.start().await;
        let key = replica.acme("a").await;
        let agent = Self { _database: database, replica, key };
        let patched = agent.patch(json!({"tools": tools})).await;
        assert_eq!(patched.status, 200, "{}", patched.text());
        agent
    }

    async fn patch(&self, body: Value) -> Answer {
        self.replica.admin("PATCH", "/agents/a", Some(body)).await
    }

    async fn put(&self, uri: &str, body: Value) {
        let answer = self.replica.admin("PUT", &resource("a", uri), Some(body)).await;
        assert!(answer.status.is_success(), "{}", answer.text());
    }

    async fn prompt(&self, name: &str, body: Value) {
        let path = format!("/agents/a/prompts/{name}");
        let answer = self.replica.admin("PUT", &path, Some(body)).await;
        assert!(answer.status.is_success(), "{}", answer.text());
    }

    /// The answer to a request of a client of a revision.
    async fn ask(&self, key: &str, revision: &str, method: &str, mut params: Value) -> Answer {
        let named =
            ["name", "uri"].into_iter().find_map(|member| params.get(member)?.as_str().map(str::to_owned));
        let mut headers = vec![
            ("x-agent-api-key", key),
            ("content-type", "application/json"),
            ("mcp-protocol-version", revision),
        ];
        if revision == MODERN {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            headers.push(("mcp-method", method));
            headers.extend(named.as_deref().map(|name| ("mcp-name", name)));
        }
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
        self.replica.http.send("POST", "/a/mcp", &headers, body).await
    }

    /// The names of the listed tools.
    async fn names(&self, key: &str) -> Vec<String> {
        let listed = self.ask(key, MODERN, "tools/list", json!({})).await.json();
        let tools = listed["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The result of a tool in a revision.
    async fn result_in(&self, revision: &str, tool: &str, arguments: Value) -> Value {
        let answer =
            self.ask(&self.key, revision, "tools/call", json!({"name": tool, "arguments": arguments})).await;
        assert_eq!(answer.status, 200);
        answer.json()["result"].clone()
    }

    async fn result(&self, tool: &str, arguments: Value) -> Value {
        self.result_in("2025-11-25", tool, arguments).await
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn said(content: Value) -> Value {
    json!({"role": "user", "content": content})
}

/// A result that shows a fault to a model.
fn shown(fault: &str) -> Value {
    json!({"content": [text(fault)], "isError": true})
}

#[tokio::test]
async fn member_tools_is_set_read_and_removed() {
    let agent = Agent::new(json!(["prompt_tools", "resources", "search", "resources"])).await;
    let read = async || agent.replica.admin("GET", "/agents/a", None).await;
    let before = read().await;
    assert_eq!(before.json()["tools"], json!(["search", "resources", "prompt_tools"]));
    let same = agent.patch(json!({"tools": ["search", "resources", "prompt_tools"]})).await;
    assert_eq!(same.revision(), before.revision(), "nothing changed");
    let removed = agent.patch(json!({"tools": []})).await;
    assert_eq!(removed.revision(), before.revision() + 1);
    assert_eq!(read().await.json()["tools"], json!([]));
    let body = json!({"id": "b", "tenant": "acme", "tools": ["prompts"]});
    let made = agent.replica.admin("POST", "/agents", Some(body)).await;
    assert_eq!((made.status.as_u16(), made.json()["tools"].clone()), (201, json!(["prompts"])));
    let expected = "expected search, resources, prompts or prompt_tools";
    for (tools, detail) in [
        (json!(["tasks"]), format!("tools[0]: unknown tools `tasks`, {expected} at line 1 column 18")),
        (
            json!(["resources", "Prompts"]),
            format!("tools[1]: unknown tools `Prompts`, {expected} at line 1 column 32"),
        ),
        (json!([""]), format!("tools[0]: unknown tools ``, {expected} at line 1 column 13")),
        (json!([1]), "tools[0]: invalid type: integer `1`, expected a string at line 1 column 11".to_owned()),
        (json!("prompts"), "tools: must be a list".to_owned()),
        (json!({}), "tools: must be a list".to_owned()),
        (json!(null), "tools: must be a list".to_owned()),
    ] {
        let answer = agent.patch(json!({"tools": tools})).await;
        let problem = answer.json();
        assert_eq!((answer.status.as_u16(), &problem["code"]), (400, &json!("invalid_params")), "{tools}");
        assert_eq!(problem["detail"], json!(detail), "{tools}");
    }
}
