//! The final state, as the administration API returns it, and which clients missed it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::client::{CatalogView, Client, items};
use crate::fixture::{Agent, DELETED, QUIET, SERVED, SHADOWED, WRITTEN, parse};
use crate::fleet::Fleet;
use crate::writer::{path, template_path};

/// The current catalog of each agent.
pub(crate) async fn views(fleet: &Fleet, agents: &[Agent]) -> HashMap<String, CatalogView> {
    let mut all = HashMap::new();
    for agent in agents {
        all.insert(agent.slug.clone(), of(fleet, &agent.slug).await);
    }
    all
}

async fn of(fleet: &Fleet, agent: &str) -> CatalogView {
    let get = async |path: String| {
        let answer = fleet.admin_retry("GET", &path, None).await;
        assert!([200, 404].contains(&answer.status), "{path}: {}", answer.text());
        answer.json()
    };
    let number = |text: &Value| text.as_str().map(|text| parse(text).unwrap().1);
    let registered = async |uri: &str| number(&get(path(agent, uri)).await["contents"][0]["text"]);
    let served = number(&get(template_path(agent)).await["template"]);
    let mut view = CatalogView::default();
    for uri in [WRITTEN[0], WRITTEN[1], DELETED, QUIET] {
        view.texts.insert(uri, registered(uri).await);
    }
    view.texts.insert(SERVED, served);
    view.texts.insert(SHADOWED, registered(SHADOWED).await.or(served));
    let list = async |of: &str| get(format!("/agents/{agent}/{of}?limit=500")).await["items"].take();
    view.resources = items(&list("resources").await, "uri", "name");
    view.resources.extend(items(&list("templates").await, "uriTemplate", "name"));
    view.resources.sort();
    view.prompts = items(&list("prompts").await, "name", "description");
    view
}

/// What clients last read that differs from the final state, one per line.
pub(crate) fn missed(clients: &[Arc<Client>], expected: &HashMap<String, CatalogView>) -> Vec<String> {
    let mut missed = Vec::new();
    for client in clients {
        let (expected, view) = (&expected[&client.agent.slug], client.view.lock().unwrap());
        let name = &client.name;
        for uri in &client.subscriptions.uris {
            let (is, read) = (expected.texts[uri], view.texts.get(uri).copied().flatten());
            if is != read {
                missed.push(format!("{name} at {uri}: {read:?}, expected {is:?}"));
            }
        }
        if client.subscriptions.lists {
            let lists = [(&expected.resources, &view.resources), (&expected.prompts, &view.prompts)];
            for (is, read) in lists.into_iter().filter(|(is, read)| is != read) {
                missed.push(format!("{name}: {read:?}, expected {is:?}"));
            }
        }
        if !client.connected.load(Ordering::Relaxed) {
            missed.push(format!("{name} has no stream: {}", client.attempts()));
        }
    }
    missed
}
