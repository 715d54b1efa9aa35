//! Clients with `subscriptions/listen`, which read again after each reconnect.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::client::{MODERN, Worker, meta, pause};
use crate::ledger::count;
use crate::sse::{Event, Events};

/// A stream, and what of the wish it honours.
struct Listening {
    events: Events,
    id: String,
    honoured: HashSet<&'static str>,
}

/// Lives until it is aborted. Its first stream is with the replica of this number.
pub(crate) async fn live(client: Worker, mut replica: usize) {
    for number in 0.. {
        if let Some(mut listening) = listen(&client, replica, number).await {
            client.connected(true);
            client.read_all().await;
            follow(&client, &mut listening).await;
            client.connected(false);
            count(&client.ledger.reconnects);
        }
        pause(20..150).await;
        replica += 1;
    }
}

async fn follow(client: &Worker, listening: &mut Listening) {
    // What was not there is there now: it takes another request to hear of it.
    while !has_come(client, listening) {
        let Some(event) = listening.events.next().await else { return };
        if !heed(client, listening, &event).await {
            return;
        }
    }
}

/// Whether something that was not honoured is listed by now, or was read.
fn has_come(client: &Worker, listening: &Listening) -> bool {
    let seen = client.client.seen.lock().unwrap();
    let is_there = |uri: &&str| {
        let listed = format!("{uri} ");
        seen.texts[uri].is_some() || seen.resources.iter().any(|item| item.starts_with(&listed))
    };
    client.client.wish.uris.iter().any(|uri| !listening.honoured.contains(uri) && is_there(uri))
}

async fn listen(client: &Worker, replica: usize, number: u32) -> Option<Listening> {
    let id = format!("{} {number}", client.client.name);
    let mut filter = json!({"resourceSubscriptions": client.client.wish.uris});
    if client.client.wish.lists {
        filter["resourcesListChanged"] = json!(true);
        filter["promptsListChanged"] = json!(true);
    }
    let params = json!({"_meta": meta(), "notifications": filter});
    let message = json!({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params});
    let headers = [
        ("x-agent-api-key", client.client.agent.key.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", MODERN),
        ("mcp-method", "subscriptions/listen"),
    ];
    let port = client.fleet.port(replica);
    let body = message.to_string();
    let response = client.fleet.http.open(port, "POST", &client.path(), &headers, body).await;
    let status = response.as_ref().map(|response| response.status().as_u16());
    client.client.tried(format_args!("listen at {port}: {status:?}"));
    let response = response?;
    let status = response.status().as_u16();
    if status >= 500 {
        return None;
    }
    let mut events = Events::of(response);
    let first = events.next().await?.message;
    if first["method"] != "notifications/subscriptions/acknowledged" {
        client.ledger.refused.add(format!("{} listen: {status} {first}", client.client.name));
        return None;
    }
    let honours = &first["params"]["notifications"]["resourceSubscriptions"];
    let honours = |uri: &&str| honours.as_array().unwrap().contains(&Value::from(*uri));
    let honoured = client.client.wish.uris.iter().copied().filter(honours).collect();
    Some(Listening { events, id, honoured })
}

/// Reads what it is told of; false where that was the last event.
async fn heed(client: &Worker, listening: &Listening, event: &Event) -> bool {
    let message = &event.message;
    if message["result"].is_object() {
        return false;
    }
    count(&client.ledger.events);
    let whose = &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    if client.client.still || *whose != listening.id.as_str() {
        client.foreign(format_args!("what is not its own: {message}"));
    }
    match message["method"].as_str() {
        Some("notifications/resources/updated") => {
            let told = |uri: &&&str| message["params"]["uri"] == **uri;
            match listening.honoured.iter().find(told) {
                Some(uri) => _ = client.read(uri).await,
                None => client.foreign(message),
            }
        }
        Some("notifications/resources/list_changed") if client.client.wish.lists => {
            client.list_resources().await;
        }
        Some("notifications/prompts/list_changed") if client.client.wish.lists => {
            client.list_prompts().await;
        }
        _ => client.foreign(message),
    }
    true
}
