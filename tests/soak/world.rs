//! Tenants and agents with equal URIs, and their subscribers.

use serde_json::{Value, json};

use crate::fleet::Fleet;

const TENANTS: usize = 5;
pub(crate) const AGENTS: usize = 50;
/// To the last of the agents nobody writes.
const STILL: usize = 3;

/// Registered, and written to.
pub(crate) const WRITTEN: [&str; 3] = ["soak://r/0", "soak://r/1", "soak://r/2"];
/// That one of them which is deleted now and then.
pub(crate) const DELETED: &str = WRITTEN[2];
/// Registered, and written to by nobody.
pub(crate) const QUIET: &str = "soak://quiet";
/// Served by the template, as is the next.
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
pub(crate) struct World {
    pub(crate) agents: Vec<Agent>,
}

impl World {
    /// Registers everything.
    pub(crate) async fn make(fleet: &Fleet) -> Self {
        for tenant in 0..TENANTS {
            let made = fleet.ask("POST", "/tenants", Some(json!({"id": format!("t{tenant}")}))).await;
            assert_eq!(made.status, 201, "{}", made.text());
        }
        let mut agents = Vec::new();
        for number in 0..AGENTS {
            agents.push(agent(fleet, number).await);
        }
        Self { agents }
    }

    /// Any of those that are written to.
    pub(crate) fn any(&self) -> &Agent {
        &self.agents[rand::random_range(0..AGENTS - STILL)]
    }

    pub(crate) fn is_still(&self, agent: &Agent) -> bool {
        self.agents[AGENTS - STILL..].iter().any(|still| still.slug == agent.slug)
    }
}

async fn agent(fleet: &Fleet, number: usize) -> Agent {
    let tenant = format!("t{}", number % TENANTS);
    let slug = format!("{tenant}-a{number}");
    let made = fleet.ask("POST", "/agents", Some(json!({"id": slug, "tenant": tenant}))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let resources: Vec<_> =
        WRITTEN.iter().chain([&QUIET]).map(|uri| resource(uri, "name", &text(&slug, 0))).collect();
    let manifest = json!({
        "apiVersion": "waggle/v1", "agent": slug,
        "resources": resources, "templates": [template("name", &slug, 0)], "prompts": [],
    });
    let applied = fleet.ask("PUT", &format!("/agents/{slug}/manifest"), Some(manifest)).await;
    assert_eq!(applied.status, 200, "{}", applied.text());
    let made = fleet.ask("POST", &format!("/agents/{slug}/keys"), Some(json!({"scopes": ["mcp"]}))).await;
    Agent { key: made.json()["key"].as_str().unwrap().to_owned(), slug }
}

pub(crate) fn resource(uri: &str, name: &str, text: &str) -> Value {
    json!({"uri": uri, "name": name, "contents": [{"text": text}]})
}

pub(crate) fn template(name: &str, agent: &str, number: u64) -> Value {
    json!({"uriTemplate": TEMPLATE, "name": name, "template": format!("{agent} {{{{ name }}}} {number}")})
}

/// Tells whose it is and which.
pub(crate) fn text(agent: &str, number: u64) -> String {
    format!("{agent} {number}")
}

/// Whose a text is, and its number.
pub(crate) fn parse(text: &str) -> Option<(&str, u64)> {
    let (agent, _) = text.split_once(' ')?;
    let (_, number) = text.rsplit_once(' ')?;
    Some((agent, number.parse().ok()?))
}

/// What the client with a number wants to hear of: never all that is there, and not every one of the lists.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) uris: Vec<&'static str>,
    pub(crate) lists: bool,
}

impl Wish {
    pub(crate) fn of(client: usize) -> Self {
        let lists = client % 3 != 2;
        let all = [WRITTEN[0], WRITTEN[1], SERVED, SHADOWED, QUIET];
        let mut uris: Vec<_> = all
            .into_iter()
            .enumerate()
            .filter(|(n, _)| n % 5 != client / 50 % 5)
            .map(|(_, uri)| uri)
            .collect();
        // Whoever is not told of lists does not hear that it is there again.
        if lists {
            uris.push(DELETED);
        }
        Self { uris, lists }
    }
}
