//! Tenants and agents with equal URIs, and the subscriptions of their clients.

use serde_json::{Value, json};

use crate::fleet::Fleet;

const TENANTS: usize = 5;
pub(crate) const AGENTS: usize = 50;
/// The number of agents that are never written, the last ones.
const UNWRITTEN: usize = 3;

/// Registered, and written.
pub(crate) const WRITTEN: [&str; 3] = ["soak://r/0", "soak://r/1", "soak://r/2"];
/// The written resource that is also deleted and created again.
pub(crate) const DELETED: &str = WRITTEN[2];
/// Registered, and never written.
pub(crate) const QUIET: &str = "soak://quiet";
/// Served by the template.
pub(crate) const SERVED: &str = "soak://t/y";
/// Served by the template unless it is registered.
pub(crate) const SHADOWED: &str = "soak://t/x";
pub(crate) const TEMPLATE: &str = "soak://t/{name}";

/// An agent, and a key of it.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) slug: String,
    pub(crate) key: String,
}

/// All agents.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) agents: Vec<Agent>,
}

impl Fixture {
    /// Registers all tenants and agents.
    pub(crate) async fn make(fleet: &Fleet) -> Self {
        for tenant in 0..TENANTS {
            let made = fleet.admin_retry("POST", "/tenants", Some(json!({"id": format!("t{tenant}")}))).await;
            assert_eq!(made.status, 201, "{}", made.text());
        }
        let mut agents = Vec::new();
        for number in 0..AGENTS {
            agents.push(agent(fleet, number).await);
        }
        Self { agents }
    }

    /// A random agent that is written.
    pub(crate) fn any(&self) -> &Agent {
        &self.agents[rand::random_range(0..AGENTS - UNWRITTEN)]
    }

    pub(crate) fn is_never_written(&self, agent: &Agent) -> bool {
        self.agents[AGENTS - UNWRITTEN..].iter().any(|unwritten| unwritten.slug == agent.slug)
    }
}

async fn agent(fleet: &Fleet, number: usize) -> Agent {
    let tenant = format!("t{}", number % TENANTS);
    let slug = format!("{tenant}-a{number}");
    let made = fleet.admin_retry("POST", "/agents", Some(json!({"id": slug, "tenant": tenant}))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let resources: Vec<_> =
        WRITTEN.iter().chain([&QUIET]).map(|uri| resource(uri, "name", &text(&slug, 0))).collect();
    let manifest = json!({
        "apiVersion": "waggle/v1", "agent": slug,
        "resources": resources, "templates": [template("name", &slug, 0)], "prompts": [],
    });
    let applied = fleet.admin_retry("PUT", &format!("/agents/{slug}/manifest"), Some(manifest)).await;
    assert_eq!(applied.status, 200, "{}", applied.text());
    let made =
        fleet.admin_retry("POST", &format!("/agents/{slug}/keys"), Some(json!({"scopes": ["mcp"]}))).await;
    Agent { key: made.json()["key"].as_str().unwrap().to_owned(), slug }
}

pub(crate) fn resource(uri: &str, name: &str, text: &str) -> Value {
    json!({"uri": uri, "name": name, "contents": [{"text": text}]})
}

pub(crate) fn template(name: &str, agent: &str, number: u64) -> Value {
    json!({"uriTemplate": TEMPLATE, "name": name, "template": format!("{agent} {{{{ name }}}} {number}")})
}

/// A text with its agent and number.
pub(crate) fn text(agent: &str, number: u64) -> String {
    format!("{agent} {number}")
}

/// The agent and number of a text.
pub(crate) fn parse(text: &str) -> Option<(&str, u64)> {
    let (agent, _) = text.split_once(' ')?;
    let (_, number) = text.rsplit_once(' ')?;
    Some((agent, number.parse().ok()?))
}

/// The subscriptions of a client: never to all URIs, and not always to the lists.
#[derive(Debug, Clone)]
pub(crate) struct Subscriptions {
    pub(crate) uris: Vec<&'static str>,
    pub(crate) lists: bool,
}

impl Subscriptions {
    pub(crate) fn of(client: usize) -> Self {
        let lists = client % 3 != 2;
        let all = [WRITTEN[0], WRITTEN[1], SERVED, SHADOWED, QUIET];
        let mut uris: Vec<_> = all
            .into_iter()
            .enumerate()
            .filter(|(n, _)| n % 5 != client / 50 % 5)
            .map(|(_, uri)| uri)
            .collect();
        // A client without list changes does not learn that it was created again.
        if lists {
            uris.push(DELETED);
        }
        Self { uris, lists }
    }
}
