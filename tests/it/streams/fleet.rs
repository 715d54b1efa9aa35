//! What many replicas on one database cost: nothing is sent while nothing changes, an event costs as many messages with
//! many replicas as with few, and a replica that does not answer delays one event.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::postgres::{PgListener, PgPoolOptions};

use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::events::{Events, listen};
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

const REPLICAS: usize = 4;
const EVENTS: usize = 10;

/// Receives what the replicas send to each other.
async fn messages(database: &Database) -> PgListener {
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(database.options.clone());
    let mut listener = PgListener::connect_with(&pool).await.unwrap();
    listener.listen("waggle").await.unwrap();
    listener
}

/// The messages received so far. A query on the connection is answered after everything sent before.
async fn received(listener: &mut PgListener) -> Vec<String> {
    sqlx::query("select 1").fetch_all(&mut *listener).await.unwrap();
    std::iter::from_fn(|| listener.next_buffered())
        .flat_map(|sent| sent.payload().split(',').map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

async fn stream(replica: &Replica, key: &str) -> Events {
    let mut events = listen(replica, "a", key, json!(1), json!({"resourceSubscriptions": ["x:a"]})).await;
    assert_eq!(events.next_summary().await, "notifications/subscriptions/acknowledged");
    events
}

async fn publish(writer: &Replica, text: &str, streams: &mut [Events]) {
    writer.put("a", "x:a", text).await;
    for events in streams {
        assert_eq!(events.next_summary().await, "updated x:a");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_replicas_send_no_messages() {
    let database = database().await;
    let replicas = [Builder::new(&database).start().await, Builder::new(&database).start().await];
    let mut listener = messages(&database).await;
    // Several intervals of everything that a replica does regularly.
    for _ in 0..3 {
        for replica in &replicas {
            replica.caught_up().await;
        }
    }
    assert_eq!(received(&mut listener).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn event_takes_one_request_however_many_replicas_have_streams() {
    let database = database().await;
    let starts = (0..REPLICAS).map(|_| Builder::new(&database).start());
    let replicas = futures_util::future::join_all(starts).await;
    let key = replicas[0].acme("a").await;
    replicas[0].put("a", "x:a", "0").await;
    let mut streams = Vec::new();
    for replica in &replicas {
        streams.push(stream(replica, &key).await);
    }
    publish(&replicas[0], "first", &mut streams).await;
    let mut listener = messages(&database).await;
    for n in 0..EVENTS {
        publish(&replicas[n % REPLICAS], &n.to_string(), &mut streams).await;
    }
    let sent = received(&mut listener).await;
    let count = |mark: char| sent.iter().filter(|message| message.starts_with(mark)).count();
    // A sweep may find a change before its message, and have a replica request it as well.
    let most = EVENTS + EVENTS / 2;
    assert!((EVENTS..=most).contains(&count('!')), "{} requests: {sent:?}", count('!'));
    assert!(count('@') <= most, "{} acknowledgements: {sent:?}", count('@'));
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_replica_delays_only_the_first_event() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let silent = Builder::new(&database).store(|store| store.listen = proxy.options.clone());
    let (writer, silent) = tokio::join!(Builder::new(&database).start(), silent.start());
    let key = writer.acme("a").await;
    writer.put("a", "x:a", "0").await;
    let mut streams = [stream(&writer, &key).await];
    publish(&writer, "first", &mut streams).await;

    proxy.swallow(true);
    publish(&writer, "second", &mut streams).await;
    let began = Instant::now();
    for n in 0..EVENTS {
        publish(&writer, &n.to_string(), &mut streams).await;
    }
    // Each would wait for as long as the silent replica might trust its memory.
    let lease = Duration::from_millis(500);
    let took = began.elapsed();
    assert!(took < lease * u32::try_from(EVENTS).unwrap() / 2, "{EVENTS} events took {took:?}");
    assert_eq!(silent.http.text("a", &key, "x:a").await, Some((EVENTS - 1).to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_replica_is_not_waited_for() {
    let database = database().await;
    let listeners = async || database.number("select count(*) from feed_listeners").await;
    let (writer, other) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    assert_eq!(listeners().await, 2);
    other.running.stop().await;
    assert_eq!(listeners().await, 1, "it unregisters when it stops");

    // One that is killed does not: the next event waits for it, and has it removed.
    database.execute("insert into feed_listeners (listener) values ('00000000000000ff')").await;
    let key = writer.acme("a").await;
    writer.put("a", "x:a", "0").await;
    let mut streams = [stream(&writer, &key).await];
    publish(&writer, "1", &mut streams).await;
    eventually("it is removed", async || listeners().await == 1).await;
}
