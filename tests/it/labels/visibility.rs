//! What a caller sees of an agent with labels: lists, reads, prompts, completion, cursors and streams.

use http::StatusCode;
use serde_json::{Value, json};
use waggle::model::system::FailPoint;

use crate::support::app::{Builder, Replica, encode, gateway, resource};
use crate::support::cluster::{Database, database};
use crate::support::events::{Events, try_listen};
use crate::support::faults::FaultScript;

/// An agent `a` of `acme`, and keys by the labels that they have.
pub(super) struct Agent {
    pub(super) database: Database,
    pub(super) replica: Replica,
    pub(super) none: String,
    pub(super) team: String,
    pub(super) other: String,
    pub(super) owner: String,
}

pub(super) async fn agent() -> Agent {
    let (database, replica) = gateway().await;
    furnish(database, replica).await
}

async fn small_pages() -> Agent {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_MCP__PAGE_SIZE", 2).start().await;
    furnish(database, replica).await
}

async fn furnish(database: Database, replica: Replica) -> Agent {
    replica.tenant("acme").await;
    replica.agent("acme", "a").await;
    let [none, team, other] = [
        key(&replica, json!({"scopes": ["mcp"]})).await.1,
        key(&replica, json!({"scopes": ["mcp"], "labels": ["team"]})).await.1,
        key(&replica, json!({"scopes": ["mcp"], "labels": ["other", "unused"]})).await.1,
    ];
    let made = replica.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
    let owner = made["key"].as_str().unwrap().to_owned();
    Agent { database, replica, none, team, other, owner }
}

pub(super) async fn key(replica: &Replica, body: Value) -> (String, String) {
    let made = replica.admin("POST", "/agents/a/keys", Some(body)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let made = made.json();
    (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
}

async fn write(replica: &Replica, path: &str, body: Value) {
    let answer = replica.admin("PUT", path, Some(body)).await;
    assert!(answer.status.is_success(), "{}", answer.text());
}

async fn put(replica: &Replica, uri: &str, labels: &[&str]) {
    let body = json!({"name": "n", "contents": [{"text": format!("text of {uri}")}], "labels": labels});
    write(replica, &resource("a", uri), body).await;
}

impl Agent {
    fn keys(&self) -> [&str; 4] {
        [&self.none, &self.team, &self.other, &self.owner]
    }

    pub(super) async fn put(&self, uri: &str, labels: &[&str]) {
        put(&self.replica, uri, labels).await;
    }

    pub(super) async fn template(&self, text: &str, body: &str, labels: &[&str]) {
        let path = format!("/agents/a/templates?uriTemplate={}", encode(text));
        let body = json!({"name": "n", "template": body, "completions": {"v": ["one"]}, "labels": labels});
        write(&self.replica, &path, body).await;
    }

    pub(super) async fn prompt(&self, name: &str, messages: Value, labels: &[&str]) {
        let arguments = json!([{"name": "v", "completions": ["one"]}]);
        let body = json!({"messages": messages, "arguments": arguments, "labels": labels});
        write(&self.replica, &format!("/agents/a/prompts/{name}"), body).await;
    }

    async fn call(&self, key: &str, method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.replica.http.post_bearer("a", key, &message).await.json()
    }

    pub(super) async fn text(&self, key: &str, uri: &str) -> Option<String> {
        let answer = self.call(key, "resources/read", json!({"uri": uri})).await;
        answer["result"]["contents"][0]["text"].as_str().map(str::to_owned)
    }

    /// The URIs on each page of `resources/list`.
    async fn pages(&self, key: &str) -> Vec<Vec<String>> {
        let (mut pages, mut params) = (Vec::new(), json!({}));
        loop {
            let page = self.call(key, "resources/list", params).await["result"].take();
            let listed = page["resources"].as_array().unwrap().iter();
            pages.push(listed.map(|listed| listed["uri"].as_str().unwrap().to_owned()).collect());
            if page["nextCursor"].is_null() {
                return pages;
            }
            params = json!({"cursor": page["nextCursor"]});
        }
    }
}

fn not_found(uri: &str) -> Value {
    json!({"code": -32002, "message": format!("resource not found: {uri}"), "data": {"code": "resource_not_found", "uri": uri}})
}

#[tokio::test]
async fn reads_are_answered_by_what_the_caller_sees() {
    let agent = agent().await;
    agent.put("x:open", &[]).await;
    agent.put("x:team", &["team"]).await;
    agent.put("x:both", &["other", "team"]).await;
    let answered = async |uri| {
        let mut texts = Vec::new();
        for key in agent.keys() {
            texts.push(agent.text(key, uri).await.is_some());
        }
        texts
    };
    // Twice: from the definition, and from the cached result.
    for _ in 0..2 {
        assert_eq!(answered("x:open").await, [true, true, true, true]);
        assert_eq!(answered("x:team").await, [false, true, false, true]);
        assert_eq!(answered("x:both").await, [false, true, true, true]);
    }
    let hidden = agent.call(&agent.none, "resources/read", json!({"uri": "x:team"})).await;
    let unknown = agent.call(&agent.none, "resources/read", json!({"uri": "x:none"})).await;
    assert_eq!(hidden.to_string().replace("x:team", "x:none"), unknown.to_string());
    assert_eq!(hidden["error"]["code"], not_found("x:team")["code"]);
}

#[tokio::test]
async fn pages_are_full_of_what_the_caller_sees() {
    let agent = small_pages().await;
    for number in 0..7 {
        let labels: &[&str] = match number % 3 {
            0 => &[],
            1 => &["team", "more"],
            _ => &["other"],
        };
        agent.put(&format!("x:{number}"), labels).await;
    }
    for _ in 0..2 {
        assert_eq!(agent.pages(&agent.none).await, [vec!["x:0", "x:3"], vec!["x:6"]]);
        assert_eq!(agent.pages(&agent.team).await, [vec!["x:0", "x:1"], vec!["x:3", "x:4"], vec!["x:6"]]);
        assert_eq!(agent.pages(&agent.other).await, [vec!["x:0", "x:2"], vec!["x:3", "x:5"], vec!["x:6"]]);
        assert_eq!(agent.pages(&agent.owner).await.concat().len(), 7);
    }
    agent.put("x:6", &["team"]).await;
    agent.put("x:1", &[]).await;
    assert_eq!(agent.pages(&agent.none).await, [vec!["x:0", "x:1"], vec!["x:3"]]);
    assert_eq!(agent.pages(&agent.team).await, [vec!["x:0", "x:1"], vec!["x:3", "x:4"], vec!["x:6"]]);
}

#[tokio::test]
async fn cursor_is_bound_to_the_labels_of_its_caller() {
    let agent = small_pages().await;
    for number in 0..3 {
        agent.put(&format!("x:{number}"), &[]).await;
    }
    let cursor =
        async |key: &str| agent.call(key, "resources/list", json!({})).await["result"]["nextCursor"].clone();
    let (_, wider) = key(&agent.replica, json!({"scopes": ["mcp"], "labels": ["unused", "team"]})).await;
    let (_, twin) = key(&agent.replica, json!({"scopes": ["mcp"], "labels": ["team"]})).await;
    let keys: Vec<_> = agent.keys().into_iter().chain([wider.as_str()]).collect();
    let before = cursor(&agent.team).await;
    // Labels that occur in no definition count, too.
    for labelled in [false, true] {
        if labelled {
            agent.put("x:team", &["team"]).await;
            agent.put("x:other", &["other"]).await;
        }
        for (at, from) in keys.iter().enumerate() {
            let cursor = cursor(from).await;
            for (to, key) in keys.iter().enumerate() {
                let page = agent.call(key, "resources/list", json!({"cursor": cursor})).await;
                let expected = if at == to { Value::Null } else { json!(-32602) };
                assert_eq!(page["error"]["code"], expected, "from {at} to {to}, {labelled}: {page}");
            }
        }
        assert_eq!(cursor(&twin).await, before, "of the same labels");
    }
}

#[tokio::test]
async fn hidden_templates_and_resources_do_not_shadow_visible_ones() {
    let agent = agent().await;
    agent.template("x:{v}", "open {{ v }}", &[]).await;
    agent.template("x:team/{v}", "team {{ v }}", &["team"]).await;
    agent.put("x:r", &["team"]).await;
    let (none, team) = (&agent.none, &agent.team);
    for _ in 0..3 {
        assert_eq!(agent.text(none, "x:r").await.as_deref(), Some("open r"));
        assert_eq!(agent.text(team, "x:r").await.as_deref(), Some("text of x:r"));
        assert_eq!(agent.text(none, "x:team/1").await, None);
        assert_eq!(agent.text(team, "x:team/1").await.as_deref(), Some("team 1"));
    }
    agent.template("x:team/{+v}", "wide {{ v }}", &[]).await;
    assert_eq!(agent.text(none, "x:team/1").await.as_deref(), Some("wide 1"));
    assert_eq!(agent.text(team, "x:team/1").await.as_deref(), Some("team 1"));
}

#[tokio::test]
async fn hidden_prompts_and_embedded_resources_are_unknown() {
    let agent = agent().await;
    agent.put("x:team", &["team"]).await;
    let embedding = json!([{"role": "user", "content": {"type": "resource", "resource": {"uri": "x:team"}}}]);
    let plain = json!([{"role": "user", "content": {"type": "text", "text": "hello"}}]);
    agent.prompt("embeds", embedding, &[]).await;
    agent.prompt("secret", plain, &["team"]).await;
    agent.template("y:{v}", "t", &["team"]).await;
    let get = async |key: &str, name: &str| agent.call(key, "prompts/get", json!({"name": name})).await;
    let complete = async |key: &str, reference: Value| {
        let params = json!({"ref": reference, "argument": {"name": "v", "value": ""}});
        agent.call(key, "completion/complete", params).await
    };
    let prompt = |name: &str| json!({"type": "ref/prompt", "name": name});
    let template = |uri: &str| json!({"type": "ref/resource", "uri": uri});
    for _ in 0..2 {
        assert_eq!(get(&agent.none, "embeds").await["error"], not_found("x:team"));
        let embedded = get(&agent.team, "embeds").await;
        assert_eq!(embedded["result"]["messages"][0]["content"]["resource"]["text"], "text of x:team");
        assert!(get(&agent.team, "secret").await["result"].is_object());
        let hidden = get(&agent.none, "secret").await.to_string();
        assert_eq!(hidden.replace("secret", "absent"), get(&agent.none, "absent").await.to_string());
    }
    assert_eq!(
        complete(&agent.team, prompt("secret")).await["result"]["completion"]["values"],
        json!(["one"])
    );
    assert_eq!(
        complete(&agent.team, template("y:{v}")).await["result"]["completion"]["values"],
        json!(["one"])
    );
    let hidden = complete(&agent.none, prompt("secret")).await.to_string();
    assert_eq!(hidden.replace("secret", "absent"), complete(&agent.none, prompt("absent")).await.to_string());
    let hidden = complete(&agent.none, template("y:{v}")).await.to_string();
    assert_eq!(hidden.replace("y:{v}", "z:{v}"), complete(&agent.none, template("z:{v}")).await.to_string());
}

#[tokio::test]
async fn bound_on_comparisons_counts_visible_templates_only() {
    let agent = agent().await;
    let template = |number: usize| json!({"uriTemplate": format!("x:{{v}}/t{number}"), "name": "n", "template": "t", "labels": ["team"]});
    let templates: Vec<_> = (0..300).map(template).collect();
    write(&agent.replica, "/agents/a/manifest", json!({"apiVersion": "waggle/v1", "templates": templates}))
        .await;
    let uris: Vec<_> = (0..1_000).map(|number| format!("x:{number}")).collect();
    let listen = async |key: &str| {
        let filter = json!({"resourceSubscriptions": uris});
        try_listen(&agent.replica, "a", key, json!(1), filter).await
    };
    let seen: Value = listen(&agent.team).await.json().await.unwrap();
    let message = seen["error"]["message"].as_str().unwrap();
    assert!(message.contains("take more than 250000 comparisons"), "{seen}");
    let honored = Events::of(listen(&agent.none).await).next().await.unwrap().json();
    assert_eq!(honored["params"]["notifications"], json!({"resourceSubscriptions": []}));
}

/// The `cacheScope` of a modern list.
async fn cache_scope(replica: &Replica, key: Option<&str>) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {"_meta": meta}});
    let mut headers = vec![
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "resources/list"),
    ];
    let bearer = key.map(|key| format!("Bearer {key}"));
    headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    replica.http.send("POST", "/a/mcp", &headers, message.to_string()).await.json()["result"]["cacheScope"]
        .clone()
}

#[tokio::test]
async fn results_are_public_for_callers_without_labels_only() {
    let agent = agent().await;
    agent.put("x:team", &["team"]).await;
    for key in agent.keys() {
        assert_eq!(cache_scope(&agent.replica, Some(key)).await, "private");
    }
    agent.replica.admin("PATCH", "/agents/a", Some(json!({"access": "public"}))).await;
    assert_eq!(cache_scope(&agent.replica, None).await, "public");
    assert_eq!(cache_scope(&agent.replica, Some(&agent.none)).await, "public");
    assert_eq!(cache_scope(&agent.replica, Some(&agent.team)).await, "private");
    assert_eq!(cache_scope(&agent.replica, Some(&agent.owner)).await, "private");
}

#[tokio::test]
async fn labels_do_not_count_at_agents_that_the_credential_does_not_reach() {
    let agent = agent().await;
    agent.put("x:team", &["team"]).await;
    agent.replica.admin("PATCH", "/agents/a", Some(json!({"access": "public"}))).await;
    agent.replica.tenant("rival").await;
    agent.replica.agent("rival", "b").await;
    let made = agent.replica.admin("POST", "/agents/b/keys", Some(json!({"labels": ["team"]}))).await.json();
    let owner = agent.replica.admin("POST", "/tenants/rival/keys", Some(json!({}))).await.json();
    for foreign in [&made["key"], &owner["key"]] {
        assert_eq!(agent.text(foreign.as_str().unwrap(), "x:team").await, None);
        assert_eq!(agent.pages(foreign.as_str().unwrap()).await, [Vec::<String>::new()]);
    }
}

#[tokio::test]
async fn label_added_between_list_and_read_hides() {
    let database = database().await;
    let replicas = [Builder::new(&database).start().await, Builder::new(&database).start().await];
    replicas[0].acme("a").await;
    put(&replicas[0], "x:1", &[]).await;
    let (_, none) = key(&replicas[0], json!({})).await;
    let read = async |replica: &Replica| replica.http.text("a", &none, "x:1").await;
    for replica in &replicas {
        replica.caught_up().await;
        assert!(read(replica).await.is_some(), "cached from now on");
        let listed = replica.http.call("a", &none, "resources/list", json!({})).await;
        assert_eq!(listed["result"]["resources"][0]["uri"], "x:1");
    }
    put(&replicas[0], "x:1", &["team"]).await;
    assert_eq!(read(&replicas[0]).await, None);
    replicas[1].caught_up().await;
    assert_eq!(read(&replicas[1]).await, None);
    let listed = replicas[1].http.call("a", &none, "resources/list", json!({})).await;
    assert_eq!(listed["result"]["resources"], json!([]));
}

#[tokio::test]
async fn label_added_between_load_and_fill_of_a_result_hides() {
    let (database, faults) = (database().await, FaultScript::new());
    let replica = Builder::new(&database).fault_injector(faults.clone()).start().await;
    replica.acme("a").await;
    put(&replica, "x:1", &[]).await;
    let (_, none) = key(&replica, json!({})).await;
    let list = || replica.http.call("a", &none, "resources/list", json!({}));
    assert_eq!(list().await["result"]["resources"][0]["uri"], "x:1");
    // The definition is in memory and visible; its contents are about to be loaded.
    let hold = faults.hold(FailPoint::Load);
    let first = replica.http.text("a", &none, "x:1");
    let (first, ()) = tokio::join!(first, hold.meanwhile(put(&replica, "x:1", &["team"])));
    assert!(first.is_some_and(|text| text == "text of x:1"), "the read began before the label");
    assert_eq!(replica.http.text("a", &none, "x:1").await, None);
    assert_eq!(list().await["result"]["resources"], json!([]));
}
