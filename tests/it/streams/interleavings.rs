//! Orders of events in which a change could be lost, repeated or delivered too early. Each rule of the feed has a test
//! here that fails without it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use waggle::model::system::FailPoint;

use crate::support::app::{Builder, Replica, resource};
use crate::support::cluster::{Database, database};
use crate::support::events::{Event, Events, Session, listen};
use crate::support::faults::{Fault, FaultScript};
use crate::support::proxy::Proxy;
use crate::support::wait::{eventually, eventually_some};

const QUIET: Duration = Duration::from_millis(300);

/// Two replicas, of which the first can be held, and an agent `a` with `x:a` and `x:b`.
async fn two_replicas() -> (Database, Arc<FaultScript>, Replica, Replica, String) {
    let database = database().await;
    let faults = FaultScript::new();
    let held = Builder::new(&database).fault_injector(Arc::clone(&faults) as Arc<_>);
    let (one, two) = tokio::join!(held.start(), Builder::new(&database).start());
    let key = one.acme("a").await;
    for uri in ["x:a", "x:b"] {
        one.put("a", uri, "1").await;
    }
    (database, faults, one, two, key)
}

async fn watching(replica: &Replica, key: &str, uri: &str) -> Events {
    let mut events = listen(replica, "a", key, json!(1), json!({"resourceSubscriptions": [uri]})).await;
    assert_eq!(events.next_summary().await, "notifications/subscriptions/acknowledged");
    events
}

#[tokio::test]
async fn change_read_before_a_remote_subscription_is_delivered() {
    let (_database, faults, one, two, key) = two_replicas().await;
    let session = Session::open(&one, "a", &key, "2025-06-18").await;
    let mut stream = session.stream(&one, None).await;
    let mut other = watching(&one, &key, "x:a").await;
    let hold = faults.hold(FailPoint::BeforeSubscription);
    session.subscribe(&two, "x:a").await;
    hold.meanwhile(async {
        two.put("a", "x:a", "2").await;
        assert_eq!(other.next_summary().await, "updated x:a", "the change was read");
    })
    .await;
    stream.expect_events(&["updated x:a"]).await;
}

#[tokio::test]
async fn coalesced_changes_are_delivered_after_a_resume() {
    let (database, faults, one, two, key) = two_replicas().await;
    let session = Session::open(&one, "a", &key, "2025-06-18").await;
    session.subscribe(&one, "x:a").await;
    session.subscribe(&one, "x:b").await;
    let mut stream = session.stream(&one, None).await;
    let hold = faults.hold(FailPoint::BeforeStreamsRead);
    let first = one.put("a", "x:a", "2").await;
    hold.meanwhile(async {
        one.put("a", "x:b", "2").await;
        one.put("a", "x:a", "3").await;
    })
    .await;
    let event = stream.next().await.unwrap();
    let ids = session.event_ids(&database).await;
    let watermark = event.position(&ids).watermark.0;
    assert_eq!((event.summary(), watermark), ("updated x:a".to_owned(), first), "x:b is still unsent");
    drop(stream);
    let mut resumed = session.stream(&two, event.id.as_deref()).await;
    let events = [resumed.next().await.unwrap(), resumed.next().await.unwrap()];
    assert_eq!(events.each_ref().map(Event::summary), ["updated x:b", "updated x:a"]);
    assert_eq!(events.map(|event| event.position(&ids).watermark.0), [first + 1, first + 2]);
    resumed.expect_events(&[]).await;
}

#[tokio::test]
async fn changed_prompt_relists_no_tools_while_the_agent_cannot_be_read() {
    let (_database, faults, one, two, key) = two_replicas().await;
    assert_eq!(one.http.text("a", &key, "x:a").await.as_deref(), Some("1"), "the agent is in memory");
    let session = Session::open(&one, "a", &key, "2025-06-18").await;
    let mut stream = session.stream(&one, None).await;
    let (load, follow) = (faults.hold(FailPoint::CacheFillRead), faults.hold(FailPoint::BeforeStreamsRead));
    let prompt = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "1"}}]});
    assert_eq!(two.admin("PUT", "/agents/a/prompts/p", Some(prompt)).await.status, 201);
    let (behind, loading) = (CancellationToken::new(), CancellationToken::new());
    let following = follow.meanwhile(async {
        behind.cancel();
        loading.cancelled().await;
    });
    let reading = async {
        behind.cancelled().await;
        one.http.text("a", &key, "x:a").await
    };
    let notified = load.meanwhile(async {
        faults.fail(FailPoint::Load, Fault::Refused);
        loading.cancel();
        stream.expect_events(&["prompts"]).await;
    });
    tokio::join!(following, reading, notified);
}

#[tokio::test]
async fn only_the_newest_stream_of_a_session_receives_events() {
    let (_database, faults, one, two, key) = two_replicas().await;
    let session = Session::open(&one, "a", &key, "2025-06-18").await;
    session.subscribe(&one, "x:a").await;
    // The first replica already reads the agent's changes, so a stream does not wait for that.
    let _reads_changes = watching(&one, &key, "x:b").await;
    // The second replica finds the changes of the first one by its sweep only.
    faults.lose_notifications(100);
    let mut older = session.stream(&two, None).await;
    for _ in 0..3 {
        let mut newer = session.stream(&one, None).await;
        two.put("a", "x:a", "2").await;
        two.put("a", "x:a", "1").await;
        let received = tokio::join!(older.drain(QUIET), newer.drain(Duration::from_secs(2)));
        assert_eq!(received.0, Vec::<String>::new());
        assert!(
            received.1.iter().all(|event| event == "updated x:a") && !received.1.is_empty(),
            "{:?}",
            received.1
        );
        older = session.stream(&two, None).await;
        newer.expect_events(&[]).await;
        older.drain(QUIET).await;
    }
}

#[tokio::test]
async fn changes_pruned_during_a_replay_are_delivered() {
    let database = database().await;
    let faults = FaultScript::new();
    let builder = Builder::new(&database).fault_injector(Arc::clone(&faults) as Arc<_>);
    let replica = builder.set("WAGGLE_CHANGES__RETAIN_SECONDS", 1).start().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:a", "1").await;
    let session = Session::open(&replica, "a", &key, "2025-06-18").await;
    session.subscribe(&replica, "x:a").await;
    replica.put("a", "x:a", "2").await;
    let hold = faults.hold(FailPoint::DuringReplay);
    let (mut stream, pruned) = tokio::join!(
        session.stream(&replica, None),
        hold.meanwhile(async {
            let kept = "select count(*) from changes where at > now() - interval '1100 ms'";
            eventually("the changes are too old to be kept", async || database.number(kept).await == 0).await;
            replica.running.services.maintenance.prune_changes(&CancellationToken::new()).await;
            database.number("select count(*) from changes").await
        })
    );
    assert_eq!(pruned, 0);
    stream.expect_events(&["updated x:a"]).await;
}

#[tokio::test]
async fn quiet_subject_is_delivered_beside_a_busy_one() {
    let database = database().await;
    let faults = FaultScript::new();
    let replica = Builder::new(&database).fault_injector(Arc::clone(&faults) as Arc<_>).start().await;
    let key = replica.acme("a").await;
    for uri in ["x:busy", "x:quiet"] {
        replica.put("a", uri, "1").await;
    }
    let filter = json!({"resourceSubscriptions": ["x:busy", "x:quiet"]});
    let mut events = listen(&replica, "a", &key, json!(1), filter).await;
    // Whenever an event is about to be sent, there is a newer change.
    let busy = async {
        let mut hold = faults.hold(FailPoint::BeforeDelivery);
        for n in 0.. {
            let newer = async {
                replica.put("a", "x:busy", &n.to_string()).await;
                faults.hold(FailPoint::BeforeDelivery)
            };
            hold = hold.meanwhile(newer).await;
        }
    };
    let quiet = async {
        for n in 0..5 {
            // Not for a condition: the busy subject is written repeatedly during this time.
            tokio::time::sleep(Duration::from_millis(300)).await;
            replica.put("a", "x:quiet", &n.to_string()).await;
            let written = Instant::now();
            while events.next_summary().await != "updated x:quiet" {}
            assert!(written.elapsed() < Duration::from_secs(1), "{:?}", written.elapsed());
        }
    };
    tokio::select! {
        () = busy => {}
        () = quiet => {}
    }
}

/// A replica whose notifications are lost, one with streams, and one that is read from.
struct Unnotified {
    writer: Replica,
    streams: Replica,
    reader: Replica,
    key: String,
    _database: Database,
}

impl Unnotified {
    async fn new() -> Self {
        let (database, faults, writer, streams, key) = two_replicas().await;
        let reader = Builder::new(&database).start().await;
        faults.lose_notifications(100);
        Self { writer, streams, reader, key, _database: database }
    }

    /// Makes a write that the reader, which has the previous text in memory, is not notified of.
    async fn write(&self, text: &str) {
        self.read().await;
        self.writer.put("a", "x:a", text).await;
    }

    async fn read(&self) -> String {
        self.reader.http.text("a", &self.key, "x:a").await.unwrap()
    }
}

/// Repeated, since a sweep may find a lost notification once or twice.
const TIMES: usize = 6;

#[tokio::test]
async fn listen_makes_earlier_writes_readable_on_every_replica() {
    let unnotified = Unnotified::new().await;
    for text in (0..TIMES).map(|n| n.to_string()) {
        unnotified.write(&text).await;
        let _events = watching(&unnotified.streams, &unnotified.key, "x:a").await;
        assert_eq!(unnotified.read().await, text, "older, without a later notification");
    }
}

#[tokio::test]
async fn subscribe_makes_earlier_writes_readable_on_every_replica() {
    let unnotified = Unnotified::new().await;
    let sessions = (0..TIMES).map(|_| Session::open(&unnotified.streams, "a", &unnotified.key, "2025-06-18"));
    let sessions = futures_util::future::join_all(sessions).await;
    for (n, session) in sessions.iter().enumerate() {
        unnotified.write(&n.to_string()).await;
        session.subscribe(&unnotified.streams, "x:a").await;
        assert_eq!(unnotified.read().await, n.to_string(), "older, without a later notification");
    }
}

#[tokio::test]
async fn initialize_makes_earlier_writes_listed_on_every_replica() {
    let unnotified = Unnotified::new().await;
    for n in 0..TIMES {
        let list =
            async || unnotified.reader.http.call("a", &unnotified.key, "resources/list", json!({})).await;
        let before = list().await["result"]["resources"].as_array().unwrap().len();
        unnotified.writer.put("a", &format!("x:{n}"), "1").await;
        Session::open(&unnotified.streams, "a", &unnotified.key, "2025-06-18").await;
        let after = list().await["result"]["resources"].as_array().unwrap().len();
        assert_eq!(after, before + 1, "older, without a later notification");
    }
}

#[tokio::test]
async fn resumed_events_are_readable_on_every_replica() {
    let unnotified = Unnotified::new().await;
    let session = Session::open(&unnotified.streams, "a", &unnotified.key, "2025-06-18").await;
    session.subscribe(&unnotified.streams, "x:a").await;
    for text in (0..TIMES).map(|n| n.to_string()) {
        unnotified.write(&text).await;
        let mut stream = session.stream(&unnotified.streams, None).await;
        assert_eq!(stream.next_summary().await, "updated x:a");
        assert_eq!(unnotified.read().await, text, "older than the event");
        drop(stream);
        unnotified.streams.has_streams(0).await;
    }
}

#[tokio::test]
async fn cut_connections_cause_no_reads_older_than_events() {
    let (database, _director, one, two, key) = two_replicas().await;
    let mut events = watching(&one, &key, "x:a").await;
    let cut = "select pg_terminate_backend(pid) from pg_stat_activity \
               where datname = current_database() and pid <> pg_backend_pid()";
    for round in 0..5 {
        // As many connections as the pool of each replica may have.
        let read = || two.http.text("a", &key, "x:a");
        futures_util::future::join_all((0..32).map(|_| read())).await;
        database.execute(cut).await;
        let text = format!("cut {round}");
        let body = json!({"name": "a name", "contents": [{"text": &text}]});
        // Only requests in progress at the cut are refused.
        while !one.admin("PUT", &resource("a", "x:a"), Some(body.clone())).await.status.is_success() {}
        assert_eq!(events.next_summary().await, "updated x:a");
        let read = async {
            loop {
                if let Some(read) = read().await {
                    return read;
                }
            }
        };
        assert_eq!(read.await, text);
        events.drain(QUIET).await;
    }
}

/// The first text that the replica answers. While it does not know whether what it has in memory is current, and the database
/// does not answer in time, it may refuse reads: an older text is the error.
async fn read_once_answered(replica: &Replica, agent: &str, key: &str) -> String {
    let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:a"}});
    eventually_some("an answer", async || {
        let answer = replica.http.post(agent, key, &read).await;
        match answer.status.as_u16() {
            503 => None,
            _ => Some(answer.json()["result"]["contents"][0]["text"].as_str().unwrap().to_owned()),
        }
    })
    .await
}

/// Writers, each with its own agent and stream.
const WRITERS: usize = 50;
/// Events of each writer, after each of which it reads.
const EVENTS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notified_change_is_readable_on_a_replica_without_listen() {
    let database = database().await;
    let proxy = Arc::new(Proxy::before(&database.options).await);
    let without_listen = Builder::new(&database).store(|store| store.listen = proxy.options.clone());
    let (with_listen, without_listen) = tokio::join!(Builder::new(&database).start(), without_listen.start());
    with_listen.tenant("acme").await;
    // Agents and keys of a tenant are created one after another: beside the writers, each would wait for all of them.
    let mut agents = Vec::new();
    for n in 0..WRITERS {
        let agent = format!("a{n}");
        with_listen.agent("acme", &agent).await;
        with_listen.put(&agent, "x:a", "0").await;
        let key = with_listen.key(&agent, &["mcp"]).await.1;
        agents.push((n, agent, key));
    }
    let follow = |(n, agent, key): (usize, String, String)| {
        let (with_listen, without_listen) = (&with_listen, &without_listen);
        async move {
            let mut events =
                listen(with_listen, &agent, &key, json!(n), json!({"resourceSubscriptions": ["x:a"]})).await;
            events.next().await.unwrap();
            for written in 1..=EVENTS {
                with_listen.put(&agent, "x:a", &written.to_string()).await;
                assert_eq!(events.next_summary().await, "updated x:a");
                let read = read_once_answered(without_listen, &agent, &key).await;
                assert_eq!(read, written.to_string(), "an older text was read");
            }
        }
    };
    let cut_repeatedly = async {
        loop {
            // Not for a condition: the network fails at random times, for random durations.
            let millis = |range| Duration::from_millis(rand::random_range(range));
            tokio::time::sleep(millis(100..1_000)).await;
            proxy.swallow(true);
            tokio::time::sleep(millis(50..1_500)).await;
            proxy.swallow(false);
        }
    };
    tokio::select! {
        () = cut_repeatedly => {}
        _ = futures_util::future::join_all(agents.into_iter().map(follow)) => {}
    }
}
