//! A typical request of each call, on the agent `a` of the tenant `acme`.

use std::fmt::Write;

use serde_json::{Value, json};

use super::callers::Gateway;
use super::{Document, Operation, cell, head};

/// The request of a call.
struct Probe {
    /// The values of the path's parameters.
    agent: &'static str,
    tenant: &'static str,
    /// Including the question mark.
    query: &'static str,
    body: Option<Value>,
    /// What to create before each call, because the call may delete it.
    fixture: Option<Fixture>,
}

#[derive(Clone, Copy)]
enum Fixture {
    Agent,
    Tenant,
    Connection,
    Hook,
    Resource,
    Template,
    Prompt,
    Skill,
    Mount,
    Key,
}

/// The request of each operation. Decide here for a new one, then check the new row of the table.
fn probe(operation: &str, nth: usize) -> Probe {
    let plain = || Probe { agent: "a", tenant: "acme", query: "", body: None, fixture: None };
    let with = |body: Value| Probe { body: Some(body), ..plain() };
    let resource = Probe { query: "?uri=x:1", fixture: Some(Fixture::Resource), ..plain() };
    let template = Probe { query: "?uriTemplate=y:%7Bv%7D", fixture: Some(Fixture::Template), ..plain() };
    let prompt = Probe { fixture: Some(Fixture::Prompt), ..plain() };
    let mount = Probe { fixture: Some(Fixture::Mount), ..plain() };
    let skill_file = Probe { query: "?path=s&file=f", fixture: Some(Fixture::Skill), ..plain() };
    let skill = Probe { query: "?path=s", fixture: Some(Fixture::Skill), ..plain() };
    match operation {
        "listTenants" | "readTenant" | "listOwnerKeys" | "listAgents" | "readAgent" | "listAgentKeys" => {
            plain()
        }
        "listPrompts" | "listMounts" | "readManifest" | "readUsage" | "checkpointAudit" => plain(),
        "listConnections" | "readConnection" | "listTenantConnections" | "rekeyConnections" => {
            Probe { fixture: Some(Fixture::Connection), ..plain() }
        }
        "listHooks" => plain(),
        "createHook" => Probe { fixture: Some(Fixture::Resource), ..with(json!({"uris": ["x:1"]})) },
        "deleteHook" => Probe { fixture: Some(Fixture::Hook), ..plain() },
        "createConnection" => with(new_connection(&format!("new-{nth}"))),
        "testConnection" => {
            let body = json!({"source": {"path": "x"}});
            Probe { fixture: Some(Fixture::Connection), ..with(body) }
        }
        "updateConnection" => Probe { fixture: Some(Fixture::Connection), ..with(json!({})) },
        "deleteConnection" => Probe { fixture: Some(Fixture::Connection), ..plain() },
        "createTenant" => with(json!({"id": format!("new-{nth}")})),
        "createAgent" => with(json!({"id": format!("new-{nth}"), "tenant": "acme"})),
        "updateTenant" | "updateAgent" | "createOwnerKey" | "createAgentKey" => with(json!({})),
        "updateKey" | "rotateKey" => Probe { fixture: Some(Fixture::Key), ..with(json!({})) },
        "revokeKey" => Probe { fixture: Some(Fixture::Key), ..plain() },
        "deleteTenant" => Probe { tenant: "doomed", fixture: Some(Fixture::Tenant), ..plain() },
        "deleteAgent" => Probe { agent: "doomed", fixture: Some(Fixture::Agent), ..plain() },
        "explainAccess" => Probe { fixture: Some(Fixture::Key), ..with(json!({"keyId": "{key}"})) },
        "searchAgent" => Probe { query: "?q=n", ..plain() },
        "readAudit" => Probe { query: "?agent=a&limit=1", ..plain() },
        "applyManifest" => Probe { query: "?dryRun=true", ..with(json!({"apiVersion": "waggle/v1"})) },
        "readResources" | "deleteResource" | "readContent" | "touchResource" => resource,
        "putResource" | "putContent" => Probe { body: Some(new_resource()), ..resource },
        "readTemplates" | "deleteTemplate" => template,
        "putTemplate" => Probe { body: Some(new_template()), ..template },
        "readPrompt" | "deletePrompt" => prompt,
        "putPrompt" => Probe { body: Some(new_prompt()), ..prompt },
        "readMount" | "deleteMount" => mount,
        "putMount" => Probe { body: Some(new_mount()), ..mount },
        "readSkills" | "deleteSkill" => skill,
        "putSkill" => Probe { body: Some(new_skill()), ..skill },
        "readSkillFile" | "deleteSkillFile" => skill_file,
        "putSkillFile" => Probe { body: Some(json!({})), ..skill_file },
        _ => panic!("{operation} is new: decide in tests/it/privileges/calls.rs how it is called"),
    }
}

fn new_connection(id: &str) -> Value {
    json!({"id": id, "kind": "http", "settings": {"baseUrl": "http://127.0.0.1:9/"}})
}

fn new_resource() -> Value {
    json!({"name": "n", "contents": [{"text": ""}]})
}

fn new_template() -> Value {
    json!({"name": "n", "template": ""})
}

fn new_prompt() -> Value {
    json!({"messages": [{"role": "user", "content": {"type": "text", "text": ""}}]})
}

fn new_mount() -> Value {
    json!({"connection": "tree", "uri": "x:///"})
}

fn new_skill() -> Value {
    let skill_md = "---\nname: s\ndescription: d\n---\n";
    json!({"files": [{"path": "SKILL.md", "text": skill_md}, {"path": "f", "text": ""}]})
}

/// Creates what a call may delete; returns the id of the key or the hook, if it is one.
async fn make(gateway: &Gateway, fixture: Fixture) -> Option<String> {
    let (method, path, body) = match fixture {
        Fixture::Agent => ("POST", "/agents", json!({"id": "doomed", "tenant": "acme"})),
        Fixture::Tenant => ("POST", "/tenants", json!({"id": "doomed"})),
        Fixture::Connection => ("POST", "/connections", new_connection("c")),
        Fixture::Resource => ("PUT", "/agents/a/resources?uri=x:1", new_resource()),
        Fixture::Template => ("PUT", "/agents/a/templates?uriTemplate=y:%7Bv%7D", new_template()),
        Fixture::Prompt => ("PUT", "/agents/a/prompts/p", new_prompt()),
        Fixture::Skill => ("PUT", "/agents/a/skills?path=s", new_skill()),
        Fixture::Mount => {
            let settings = json!({"url": "http://127.0.0.1:9/tree.git"});
            let tree = json!({"id": "tree", "kind": "git", "tenants": "*", "settings": settings});
            gateway.prepare("POST", "/connections", Some(tree)).await;
            ("PUT", "/agents/a/mounts/p", new_mount())
        }
        Fixture::Hook => {
            gateway.prepare("PUT", "/agents/a/resources?uri=x:1", Some(new_resource())).await;
            let made = gateway.prepare("POST", "/agents/a/hooks", Some(json!({"uris": ["x:1"]}))).await;
            return Some(made.json()["id"].as_str().unwrap().to_owned());
        }
        Fixture::Key => {
            let within = json!({"scopes": ["registry"], "networks": ["127.0.0.1"]});
            return Some(gateway.spare_key(within).await);
        }
    };
    gateway.prepare(method, path, Some(body)).await;
    None
}

/// One row per operation.
pub(super) async fn table(document: &Document, gateway: &mut Gateway) -> String {
    let mut table = head("call", &gateway.callers);
    for operation in document.operations() {
        let Operation { id, method, path, .. } = &operation;
        write!(table, "| {id}: `{method} {path}` |").unwrap();
        let mut key = None;
        let mut taken = true;
        for (nth, caller) in gateway.callers.iter().enumerate() {
            let probe = probe(id, nth);
            if let Some(fixture) = probe.fixture.filter(|_| taken) {
                key = make(gateway, fixture).await.or(key);
            }
            let key = key.as_deref().unwrap_or_default();
            let path = path.replace("{agent}", probe.agent).replace("{tenant}", probe.tenant);
            let path = path
                .replace("{key}", key)
                .replace("{hook}", key)
                .replace("{name}", "p")
                .replace("{connection}", "c")
                + probe.query;
            assert!(!path.contains('{'), "{path} has a parameter without a value");
            let body = probe.body.map(|body| body.to_string().replace("{key}", key).parse().unwrap());
            let cell = cell(&gateway.call(caller, method, &path, body.as_ref()).await);
            taken = cell == "ok";
            write!(table, " {cell} |").unwrap();
        }
        table.push('\n');
    }
    table
}
