//! Clients with a session, which resume on any replica.

use serde_json::json;

use crate::client::{LEGACY, Worker, pause};
use crate::ledger::count;
use crate::sse::{Event, Events};
use crate::support::events::event_ids;

/// The client disconnects instead of handling one in so many events, and receives it again.
const DISCONNECT_ODDS: u32 = 150;

/// Runs until it is aborted. The first stream is at the replica of this number.
pub(crate) async fn run(mut client: Worker, mut replica: usize) {
    client.session = Some(open(&client).await);
    for uri in client.client.subscriptions.uris.clone() {
        // A resource that was just deleted is created again soon.
        while client.call("resources/subscribe", json!({"uri": uri})).await.json()["error"].is_object() {
            pause(20..50).await;
        }
    }
    client.read_all().await;
    let mut last = None;
    loop {
        if let Some(mut events) = stream(&client, replica, last.as_deref()).await {
            client.connected(true);
            while let Some(event) = events.next().await {
                if rand::random_range(0..DISCONNECT_ODDS) == 0 {
                    break;
                }
                handle(&client, &event).await;
                last = event.id.or(last);
            }
            client.connected(false);
            count(&client.ledger.reconnects);
        }
        pause(20..150).await;
        replica += 1;
    }
}

async fn open(client: &Worker) -> String {
    let params = json!({
        "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"},
    });
    client.call("initialize", params).await.session.unwrap()
}

async fn stream(client: &Worker, replica: usize, last: Option<&str>) -> Option<Events> {
    let mut headers = vec![
        ("x-agent-api-key", client.client.agent.key.as_str()),
        ("mcp-session-id", client.session.as_deref().unwrap()),
        ("mcp-protocol-version", LEGACY),
        ("accept", "text/event-stream"),
    ];
    headers.extend(last.map(|last| ("last-event-id", last)));
    let port = client.fleet.port(replica);
    let response = client.fleet.http.open(port, "GET", &client.path(), &headers, "").await;
    let status = response.as_ref().map(|response| response.status().as_u16());
    client.client.tried(format_args!("GET at {port}: {status:?}"));
    let (response, status) = (response?, status?);
    if status != 200 && status < 500 {
        let text = response.text().await.unwrap_or_default();
        client.ledger.refused.add(format!("{} GET: {status} {text}", client.client.name));
        return None;
    }
    (status == 200).then(|| Events::of(response))
}

/// Reads what the notification is about.
async fn handle(client: &Worker, event: &Event) {
    if event.message.is_null() {
        return;
    }
    count(&client.ledger.events);
    if client.client.never_written {
        client.foreign(format_args!("of an agent that is never written: {}", event.message));
    }
    match event.message["method"].as_str() {
        Some("notifications/resources/updated") => updated(client, event).await,
        Some("notifications/resources/list_changed") => client.list_resources().await,
        Some("notifications/prompts/list_changed") => client.list_prompts().await,
        _ => client.foreign(&event.message),
    }
}

async fn updated(client: &Worker, event: &Event) {
    let updated_uri = &event.message["params"]["uri"];
    match client.client.subscriptions.uris.iter().find(|uri| updated_uri.as_str() == Some(**uri)) {
        Some(uri) => {
            let ids = event_ids(&client.seal, client.session.as_deref().unwrap());
            let position = ids.open(event.id.as_deref().unwrap()).unwrap();
            client.ledger.notified(&client.client.agent.slug, uri, position.watermark.0);
            client.read(uri).await;
        }
        None => client.foreign(&event.message),
    }
}
