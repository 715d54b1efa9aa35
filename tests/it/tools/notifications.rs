//! `notifications/tools/list_changed` in both eras.

use serde_json::json;

use super::{Agent, said, text};
use crate::support::events::{Events, Session, listen};

struct Both {
    modern: Events,
    legacy: Events,
}

impl Both {
    async fn open(agent: &Agent) -> Self {
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["x:end"]});
        let mut modern = listen(&agent.replica, "a", &agent.key, json!(1), filter).await;
        let acknowledged = modern.next().await.unwrap().json();
        let honored = json!({"toolsListChanged": true, "resourceSubscriptions": ["x:end"]});
        assert_eq!(acknowledged["params"]["notifications"], honored);
        let session = Session::open(&agent.replica, "a", &agent.key, "2025-06-18").await;
        session.subscribe(&agent.replica, "x:end").await;
        Self { modern, legacy: session.stream(&agent.replica, None).await }
    }

    /// Checks what was sent until a resource changed that both are subscribed to.
    async fn check(&mut self, agent: &Agent, modern: &[&str], legacy: &[&str], what: &str) {
        agent.replica.put("a", "x:end", what).await;
        for (stream, expected) in [(&mut self.modern, modern), (&mut self.legacy, legacy)] {
            let mut sent = Vec::new();
            loop {
                match stream.next_summary().await {
                    end if end == "updated x:end" => break,
                    event => sent.push(event),
                }
            }
            assert_eq!(sent, expected, "{what}");
        }
    }
}

#[tokio::test]
async fn tools_and_their_prompts_notify() {
    let agent = Agent::new(json!([])).await;
    agent.replica.put("a", "x:end", "0").await;
    let mut streams = Both::open(&agent).await;
    let prompt = |description: &str| json!({"description": description, "messages": [said(text("p"))]});
    agent.prompt("p", prompt("1")).await;
    streams.check(&agent, &[], &["prompts"], "a prompt that is no tool").await;
    agent.patch(json!({"title": "T"})).await;
    streams.check(&agent, &[], &[], "another member").await;
    agent.patch(json!({"tools": ["resources"]})).await;
    streams.check(&agent, &["tools"], &["tools"], "a set").await;
    agent.prompt("p", prompt("2")).await;
    streams.check(&agent, &[], &["prompts"], "a prompt without prompt_tools").await;
    agent.patch(json!({"tools": ["prompt_tools"]})).await;
    streams.check(&agent, &["tools"], &["tools"], "another set").await;
    agent.prompt("p", prompt("3")).await;
    streams.check(&agent, &["tools"], &["prompts", "tools"], "a prompt that is a tool").await;
    agent.prompt("p.q", prompt("1")).await;
    streams.check(&agent, &[], &["prompts"], "a prompt whose name is no tool's").await;
    let mut messages = prompt("3");
    messages["messages"] = json!([said(text("another"))]);
    agent.prompt("p", messages.clone()).await;
    streams.check(&agent, &[], &[], "the messages of a prompt").await;
    messages["arguments"] = json!([{"name": "a", "completions": ["1"], "closed": true}]);
    agent.prompt("p", messages.clone()).await;
    streams.check(&agent, &["tools"], &["prompts", "tools"], "an argument").await;
    messages["arguments"][0]["completions"] = json!(["1", "2"]);
    agent.prompt("p", messages.clone()).await;
    streams.check(&agent, &["tools"], &["prompts", "tools"], "the only values of an argument").await;
    let listed = agent.ask(&agent.key, "2025-11-25", "tools/list", json!({})).await.json();
    let schema = json!({"a": {"type": "string", "enum": ["1", "2"]}});
    assert_eq!(listed["result"]["tools"][0]["inputSchema"]["properties"], schema);
    messages["arguments"][0]["closed"] = json!(false);
    agent.prompt("p", messages.clone()).await;
    streams.check(&agent, &["tools"], &["prompts", "tools"], "whether there are other values").await;
    messages["arguments"][0]["completions"] = json!(["1"]);
    agent.prompt("p", messages).await;
    streams.check(&agent, &[], &[], "the suggested values of an argument").await;
}
