//! Look-ups of keys that are not cached: issued keys pass, others are charged to their address.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use waggle::identity::grant::PresentedCredential;
use waggle::model::caller::Recognition;
use waggle::model::key::{KeyKind, SecretKey};

use super::{LIST, message};
use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::faults::FaultScript;
use crate::support::http::Client;
use crate::support::load_counter::LoadCounter;
use crate::support::wait::eventually;

const KEYS: usize = 600;

fn unknown_key() -> SecretKey {
    SecretKey::generate(KeyKind::Agent, &mut rand::rng())
}

/// The status of a list at the agent `a`.
async fn status(http: &Client, client: &str, key: &str) -> u16 {
    let headers =
        [("x-forwarded-for", client), ("content-type", "application/json"), ("x-agent-api-key", key)];
    let body = message(LIST, json!({})).to_string();
    http.send("POST", "/a/mcp", &headers, body).await.status.as_u16()
}

/// Keys of the agent `a`, more than the administration API permits for one agent.
async fn issue(database: &Database, many: usize) -> Vec<SecretKey> {
    let keys: Vec<_> = (0..many).map(|_| unknown_key()).collect();
    let hashes: Vec<_> = keys.iter().map(|key| format!("'\\x{}'", key.hash())).collect();
    let inserted = database
        .execute(&format!(
            "insert into api_keys (uid, tenant, agent, hash, display, name, scopes, principal, revision, created_at)
             select gen_random_uuid(), tenant, uid, hash::bytea, 'bak_00000000', 'k', array['mcp'],
                 gen_random_uuid(), 1, now()
             from agents, unnest(array[{}]) as hash where slug = 'a'",
            hashes.join(",")
        ))
        .await;
    assert_eq!(inserted, many as u64);
    keys
}

async fn behind_a_proxy(database: &Database) -> Builder {
    Builder::new(database)
        .set("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1")
        .set("WAGGLE_LIMITS__ADDRESS_PER_SECOND", 5)
        .set("WAGGLE_LIMITS__ADDRESS_BURST", 10)
}

fn recognition(replica: &Replica, key: &SecretKey) -> Recognition {
    replica.running.services.identity.recognize(&PresentedCredential::Key(key, Some("a")))
}

#[tokio::test(flavor = "multi_thread")]
async fn issued_keys_are_admitted_during_a_flood_of_unknown_keys() {
    let database = database().await;
    Builder::new(&database).start().await.acme("a").await;
    let keys = issue(&database, KEYS).await;
    let builder = behind_a_proxy(&database).await.set("WAGGLE_ACCESS__UNKNOWN_KEYS_PER_SECOND", 20);
    let replica = builder.start().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut flood = JoinSet::new();
    for _ in 0..4 {
        let (http, stop) = (replica.http.clone(), Arc::clone(&stop));
        flood.spawn(async move {
            let mut statuses = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                statuses.push(status(&http, "192.0.2.66", unknown_key().reveal()).await);
            }
            statuses
        });
    }
    let before = replica.running.services.identity.stats().key_look_ups;
    let (began, mut callers) = (Instant::now(), JoinSet::new());
    for (nth, chunk) in keys.chunks(KEYS / 8).enumerate() {
        let (http, own) =
            (replica.http.clone(), chunk.iter().map(|key| key.reveal().to_owned()).collect::<Vec<_>>());
        // The address of the flood is among them.
        let client = format!("192.0.2.{}", 66 + nth);
        callers.spawn(async move {
            let mut refused = Vec::new();
            for key in own {
                refused.extend(Some(status(&http, &client, &key).await).filter(|status| *status != 200));
            }
            refused
        });
    }
    let refused: Vec<_> = callers.join_all().await.concat();
    let took = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    let flooded: Vec<_> = flood.join_all().await.concat();
    assert_eq!(refused, [0; 0], "of {KEYS} issued keys beside {} made-up ones", flooded.len());
    assert!(flooded.iter().all(|status| [401, 429, 503].contains(status)), "{flooded:?}");
    assert!(flooded.contains(&429), "the flood is charged to its address: {flooded:?}");
    let looked_up = replica.running.services.identity.stats().key_look_ups - before;
    let most = KEYS as u64 + 20 * (took.as_secs() + 3);
    assert!((KEYS as u64..=most).contains(&looked_up), "{looked_up} look-ups in {took:?}");
}

#[tokio::test]
async fn key_unknown_to_the_filter_is_charged_to_the_address() {
    let database = database().await;
    let silent = FaultScript::new();
    silent.lose_notifications(100);
    let writer = Builder::new(&database).fault_injector(silent).start().await;
    writer.acme("a").await;
    let builder = behind_a_proxy(&database).await.set("WAGGLE_DATABASE__SWEEP_MS", 10_000);
    // A quarter for each address.
    let reader = builder.set("WAGGLE_ACCESS__UNKNOWN_KEYS_PER_SECOND", 4).start().await;
    let mut keys = Vec::new();
    for _ in 0..4 {
        keys.push(writer.key("a", &["mcp"]).await.1);
    }
    for key in &keys {
        assert_eq!(recognition(&reader, &SecretKey::parse(key).unwrap()), Recognition::NotIssued);
    }
    let began = Instant::now();
    let mut statuses = Vec::new();
    for key in &keys[..3] {
        statuses.push(status(&reader.http, "192.0.2.1", key).await);
    }
    // One more is permitted each second.
    if began.elapsed() < Duration::from_secs(1) {
        assert_eq!(statuses, [200, 429, 429]);
    }
    assert_eq!(status(&reader.http, "192.0.2.2", &keys[3]).await, 200, "another address has its own");
    assert_eq!(status(&reader.http, "192.0.2.1", &keys[0]).await, 200, "what is in memory is not charged");
}

#[tokio::test]
async fn keys_created_on_another_replica_reach_the_filter() {
    let database = database().await;
    let [writer, reader] = [Builder::new(&database).start().await, Builder::new(&database).start().await];
    writer.acme("a").await;
    let key = SecretKey::parse(&writer.key("a", &["mcp"]).await.1).unwrap();
    assert_eq!(recognition(&writer, &key), Recognition::Recognized, "at once on the replica that created it");
    let is_recognized = async || recognition(&reader, &key) == Recognition::Recognized;
    eventually("the filter of the other replica has the key", is_recognized).await;
    assert_eq!(recognition(&reader, &unknown_key()), Recognition::NotIssued);
}

#[tokio::test]
async fn first_use_of_a_key_takes_one_look_up() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    let loads = Arc::new(LoadCounter::default());
    let replica = Builder::new(&database).fault_injector(Arc::clone(&loads) as Arc<_>).start().await;
    let ping: Value = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let before = loads.count();
    for _ in 0..3 {
        assert_eq!(replica.http.post("a", &key, &ping).await.status, 200);
    }
    assert_eq!(loads.count() - before, 1);
    assert_eq!(replica.running.services.identity.stats().key_look_ups, 1);
}
