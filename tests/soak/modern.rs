//! Clients with `subscriptions/listen`, which read everything again after each reconnect.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::client::{MODERN, Worker, meta, pause};
use crate::ledger::count;
use crate::sse::{Event, Events};

/// A stream, and the subscriptions that it honors.
struct Listening {
    events: Events,
    id: String,
    honored: HashSet<&'static str>,
}

/// Runs until it is aborted. The first stream is at the replica of this number.
pub(crate) async fn run(client: Worker, mut replica: usize) {
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
    // A URI that did not exist at the request exists now: only another request can subscribe to it.
    while !has_new_uri(client, listening) {
        let Some(event) = listening.events.next().await else { return };
        if !handle(client, listening, &event).await {
            return;
        }
    }
}

/// Whether a URI that was not honored is now listed or readable.
fn has_new_uri(client: &Worker, listening: &Listening) -> bool {
    let view = client.client.view.lock().unwrap();
    let is_there = |uri: &&str| {
        let listed = format!("{uri} ");
        view.texts[uri].is_some() || view.resources.iter().any(|item| item.starts_with(&listed))
    };
    client.client.subscriptions.uris.iter().any(|uri| !listening.honored.contains(uri) && is_there(uri))
}

async fn listen(client: &Worker, replica: usize, number: u32) -> Option<Listening> {
    let id = format!("{} {number}", client.client.name);
    let mut filter = json!({"resourceSubscriptions": client.client.subscriptions.uris});
    if client.client.subscriptions.lists {
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
    let honors = &first["params"]["notifications"]["resourceSubscriptions"];
    let honors = |uri: &&str| honors.as_array().unwrap().contains(&Value::from(*uri));
    let honored = client.client.subscriptions.uris.iter().copied().filter(honors).collect();
    Some(Listening { events, id, honored })
}

/// Reads what the notification is about; false after the final result.
async fn handle(client: &Worker, listening: &Listening, event: &Event) -> bool {
    let message = &event.message;
    if message["result"].is_object() {
        return false;
    }
    count(&client.ledger.events);
    let whose = &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    if client.client.never_written || *whose != listening.id.as_str() {
        client.foreign(format_args!("an event of another subscription: {message}"));
    }
    match message["method"].as_str() {
        Some("notifications/resources/updated") => {
            let is_subject = |uri: &&&str| message["params"]["uri"] == **uri;
            match listening.honored.iter().find(is_subject) {
                Some(uri) => _ = client.read(uri).await,
                None => client.foreign(message),
            }
        }
        Some("notifications/resources/list_changed") if client.client.subscriptions.lists => {
            client.list_resources().await;
        }
        Some("notifications/prompts/list_changed") if client.client.subscriptions.lists => {
            client.list_prompts().await;
        }
        _ => client.foreign(message),
    }
    true
}
