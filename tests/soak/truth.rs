//! The final state as the administration API shows it, and which clients missed it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::client::{Client, Seen, items};
use crate::fleet::Fleet;
use crate::world::{Agent, DELETED, QUIET, SERVED, SHADOWED, WRITTEN, parse};
use crate::writer::{path, template_path};

/// What each agent says.
pub(crate) async fn truth(fleet: &Fleet, agents: &[Agent]) -> HashMap<String, Seen> {
    let mut all = HashMap::new();
    for agent in agents {
        all.insert(agent.slug.clone(), of(fleet, &agent.slug).await);
    }
    all
}

async fn of(fleet: &Fleet, agent: &str) -> Seen {
    let get = async |path: String| {
        let answer = fleet.ask("GET", &path, None).await;
        assert!([200, 404].contains(&answer.status), "{path}: {}", answer.text());
        answer.json()
    };
    let number = |text: &Value| text.as_str().map(|text| parse(text).unwrap().1);
    let registered = async |uri: &str| number(&get(path(agent, uri)).await["contents"][0]["text"]);
    let served = number(&get(template_path(agent)).await["template"]);
    let mut seen = Seen::default();
    for uri in [WRITTEN[0], WRITTEN[1], DELETED, QUIET] {
        seen.texts.insert(uri, registered(uri).await);
    }
    seen.texts.insert(SERVED, served);
    seen.texts.insert(SHADOWED, registered(SHADOWED).await.or(served));
    let list = async |of: &str| get(format!("/agents/{agent}/{of}?limit=500")).await["items"].take();
    seen.resources = items(&list("resources").await, "uri", "name");
    seen.resources.extend(items(&list("templates").await, "uriTemplate", "name"));
    seen.resources.sort();
    seen.prompts = items(&list("prompts").await, "name", "description");
    seen
}

/// What clients last read that is not true any more, a line each.
pub(crate) fn missed(clients: &[Arc<Client>], truth: &HashMap<String, Seen>) -> Vec<String> {
    let mut missed = Vec::new();
    for client in clients {
        let (truth, seen) = (&truth[&client.agent.slug], client.seen.lock().unwrap());
        let name = &client.name;
        for uri in &client.wish.uris {
            let (is, read) = (truth.texts[uri], seen.texts.get(uri).copied().flatten());
            if is != read {
                missed.push(format!("{name} at {uri}: {read:?}, and it is {is:?}"));
            }
        }
        if client.wish.lists {
            let lists = [(&truth.resources, &seen.resources), (&truth.prompts, &seen.prompts)];
            for (is, read) in lists.into_iter().filter(|(is, read)| is != read) {
                missed.push(format!("{name}: {read:?}, and it is {is:?}"));
            }
        }
        if !client.connected.load(Ordering::Relaxed) {
            missed.push(format!("{name} has no stream: {}", client.attempts()));
        }
    }
    missed
}
