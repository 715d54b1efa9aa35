//! One replica watches a connection, and another one takes over.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use sqlx::ConnectOptions;
use uuid::Uuid;
use waggle::model::audit::write::AuditedWrite;
use waggle::model::ids::ConnectionId;
use waggle::model::system::System;
use waggle::store::Store;
use waggle::store::leases::{ConnectionLease, HeldLease};
use waggle::store::write::Write;

use super::Site;
use super::upstream::{tagged, text};
use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database, store_options};
use crate::support::events::{Events, listen, try_listen_at};
use crate::support::process::{Gateway, Site as Process};
use crate::support::wait::{eventually, eventually_some};

/// Within which another replica watches a connection after the end of the one that did.
const TAKEOVER: Duration = Duration::from_secs(10);
/// For how long nothing else may be sent.
const QUIET: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(60);

async fn kept(
    store: &Store,
    holder: Uuid,
    connections: &[ConnectionId],
    duration: Duration,
) -> Vec<HeldLease> {
    store.keep_leases(holder, connections, true, duration).await.unwrap()
}

async fn writing(store: &Store) -> Write {
    store.begin().await.unwrap().write(&AuditedWrite::UNAUDITED, &System::real())
}

async fn has(store: &Store, lease: &ConnectionLease) -> bool {
    let mut write = writing(store).await;
    let has = write.has_lease(lease).await.unwrap();
    write.finish().0.roll_back().await.unwrap();
    has
}

/// A store over the database of a site, with the connections `api` and `other`.
async fn connected() -> (Site, Store, [ConnectionId; 2]) {
    let site = Site::new().await;
    site.connection("other", json!("*"), json!({})).await;
    let store = Store::new(store_options(site._database.options.clone()));
    let mut connections = Vec::new();
    for slug in ["api", "other"] {
        let mut database = site._database.connect().await;
        let uid = sqlx::query_scalar("select uid from connections where slug = $1").bind(slug);
        connections.push(ConnectionId(uid.fetch_one(&mut database).await.unwrap()));
    }
    (site, store, connections.try_into().unwrap())
}

#[tokio::test]
async fn lease_passes_on_only_when_given_back_or_expired() {
    let (_site, store, [api, other]) = connected().await;
    let [one, two] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let lease = |connection, holder, fence| ConnectionLease { connection, holder, fence };
    let held = |leases: &[HeldLease]| leases.iter().map(|held| held.lease).collect::<Vec<_>>();
    let unknown = ConnectionId(Uuid::from_u128(9));
    assert_eq!(held(&kept(&store, one, &[api, unknown], LONG).await), [lease(api, one, 1)]);
    assert_eq!(held(&kept(&store, one, &[api], LONG).await), [lease(api, one, 1)]);
    assert_eq!(held(&kept(&store, two, &[api, other], LONG).await), [lease(other, two, 1)]);
    // It is given back, and taken.
    assert_eq!(held(&kept(&store, one, &[], LONG).await), []);
    assert!(!has(&store, &lease(api, one, 1)).await);
    let both: BTreeSet<_> = kept(&store, two, &[api, other], LONG)
        .await
        .iter()
        .map(|held| (held.lease.connection == api, held.lease.fence))
        .collect();
    assert_eq!(both, BTreeSet::from([(true, 2), (false, 1)]));
    assert!(has(&store, &lease(api, two, 2)).await);
    // It expires, and nothing is written that depends on it, whether or not it was taken.
    kept(&store, two, &[api], Duration::ZERO).await;
    assert!(!has(&store, &lease(api, two, 2)).await);
    assert_eq!(held(&kept(&store, one, &[api], LONG).await), [lease(api, one, 3)]);
    let stale = [lease(api, two, 2), lease(api, one, 1), lease(api, two, 3), lease(other, one, 1)];
    for stale in stale {
        assert!(!has(&store, &stale).await, "{stale:?}");
    }
    assert!(has(&store, &lease(api, one, 3)).await);
}

#[tokio::test]
async fn lease_is_not_taken_while_a_write_depends_on_it() {
    let (_site, store, [api, _]) = connected().await;
    let [one, two] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let short = Duration::from_millis(500);
    let lease = kept(&store, one, &[api], short).await[0].lease;
    let mut write = writing(&store).await;
    assert!(write.has_lease(&lease).await.unwrap());
    // Extending it does not wait.
    assert_eq!(kept(&store, one, &[api], short).await[0].lease, lease);
    // Not for a condition: the lease expires during this time, and nothing shows it while the write depends on it.
    tokio::time::sleep(short * 2).await;
    assert_eq!(kept(&store, two, &[api], LONG).await, []);
    write.finish().0.roll_back().await.unwrap();
    assert_eq!(kept(&store, two, &[api], LONG).await[0].lease.fence, lease.fence + 1);
}

fn polled() -> serde_json::Value {
    json!({"pollMs": 1_000})
}

/// Listens for updates of a resource; has received the first.
async fn listening(replica: &Replica, key: &str, uri: &str) -> Events {
    let mut stream = listen(replica, "notes", key, json!(1), json!({"resourceSubscriptions": [uri]})).await;
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    stream
}

async fn holder(database: &Database) -> Option<Uuid> {
    let mut connection = database.connect().await;
    let holder =
        sqlx::query_scalar("select holder from leases").fetch_optional(&mut connection).await.unwrap();
    holder.flatten()
}

#[tokio::test]
async fn one_replica_polls_what_streams_of_all_are_subscribed_to() {
    let database = database().await;
    let (first, second) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    let site = Site::over(database.clone(), first, polled()).await;
    for name in ["a", "b"] {
        site.upstream.answer(name, tagged("one", "1"));
        site.resource(name, json!({"connection": "api", "path": name, "ttlMs": 60_000})).await;
    }
    second.caught_up().await;
    let mut on_first = listening(&site.replica, &site.key, "test://a").await;
    on_first.expect_events(&["updated test://a"]).await;
    let watching = holder(&database).await;
    assert!(watching.is_some());
    let mut on_second = listening(&second, &site.key, "test://b").await;
    on_second.expect_events(&["updated test://b"]).await;
    let other = listening(&second, &site.key, "test://a").await;
    assert_eq!(holder(&database).await, watching);

    // Each content is fetched once in `pollMs`, however many replicas have streams for it.
    site.upstream.asked();
    // Not for a condition: the fetches of this time are counted.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = site.upstream.count();
    assert!((7..=13).contains(&asked), "{asked} in 5 s");
    site.upstream.answer("b", tagged("two", "2"));
    let began = Instant::now();
    assert_eq!(on_second.next_summary().await, "updated test://b");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(second.http.text("notes", &site.key, "test://b").await.as_deref(), Some("two"));

    // The holder has no streams any more, and watches as long as the other one has.
    drop(on_first);
    eventually("its subscription is forgotten", async || {
        database.number("select count(*) from watching").await == 2
    })
    .await;
    site.upstream.answer("b", tagged("three", "3"));
    assert_eq!(on_second.next_summary().await, "updated test://b");
    assert_eq!(holder(&database).await, watching);

    // What has no subscriber is not polled, and the lease is given back.
    drop((on_second, other));
    eventually("the lease is given back", async || holder(&database).await.is_none()).await;
    assert_eq!(database.number("select count(*) from watching").await, 0);
    site.upstream.asked();
    // Not for a condition: nothing is fetched during this time.
    tokio::time::sleep(QUIET).await;
    assert_eq!(site.upstream.count(), 0);
}

#[tokio::test]
async fn replica_that_stops_gives_its_lease_back() {
    let database = database().await;
    let (first, second) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    let site = Site::over(database.clone(), first, polled()).await;
    site.upstream.answer("a", text("one"));
    site.resource("a", json!({"connection": "api", "path": "a"})).await;
    second.caught_up().await;
    let mut on_first = listening(&site.replica, &site.key, "test://a").await;
    on_first.expect_events(&["updated test://a"]).await;
    let before = holder(&database).await.unwrap();
    let mut on_second = listening(&second, &site.key, "test://a").await;
    let Site { replica, upstream, .. } = site;
    replica.running.stop().await;
    assert_ne!(holder(&database).await, Some(before));
    upstream.answer("a", text("two"));
    let began = Instant::now();
    assert_eq!(on_second.next_summary().await, "updated test://a");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// A replica that watches in a process of its own, and one that has a stream, too.
struct Failover {
    site: Site,
    _process: Process,
    watcher: Gateway,
    _stream: Events,
    stream: Events,
    holder: Uuid,
}

impl Failover {
    async fn new() -> Self {
        let database = database().await;
        let replica = Builder::new(&database).start().await;
        let process = Process::unlimited()
            .set("WAGGLE_DATABASE__URL", database.options.to_url_lossy())
            .set("WAGGLE_ADMIN__OPERATOR_KEY", &replica.operator);
        let watcher = process.serve().await;
        let site = Site::over(database, replica, polled()).await;
        site.upstream.answer("a", text("0"));
        site.resource("a", json!({"connection": "api", "path": "a"})).await;
        let filter = json!({"resourceSubscriptions": ["test://a"]});
        let listening = async || {
            let response = try_listen_at(&process.http, "notes", &site.key, json!(1), filter.clone()).await;
            (response.status() == 200).then_some(response)
        };
        // The process may not know the agent yet.
        let mut on_process = Events::of(eventually_some("a stream of the process", listening).await);
        on_process.expect_events(&["notifications/subscriptions/acknowledged", "updated test://a"]).await;
        let holder = holder(&site._database).await.unwrap();
        let stream = self::listening(&site.replica, &site.key, "test://a").await;
        Self { site, _process: process, watcher, _stream: on_process, stream, holder }
    }

    /// Waits until another replica holds the lease, and a change behind its back is received.
    async fn taken_over(&mut self, began: Instant) -> Duration {
        let Self { site, stream, holder, .. } = self;
        eventually("another replica watches", async || {
            self::holder(&site._database).await.is_some_and(|now| now != *holder)
        })
        .await;
        let took = began.elapsed();
        assert!(took < TAKEOVER, "{took:?}");
        assert_eq!(stream.next_summary().await, "updated test://a");
        assert_eq!(site.text("test://a").await, "1");
        took
    }
}

#[tokio::test]
async fn killed_watcher_is_replaced_and_no_change_is_lost() {
    let mut failover = Failover::new().await;
    kill(failover.watcher.pid(), Signal::SIGKILL).unwrap();
    let began = Instant::now();
    failover.site.upstream.answer("a", text("1"));
    println!("another replica watches after {:?}", failover.taken_over(began).await);
}

#[tokio::test]
async fn watcher_that_is_paused_past_its_lease_writes_nothing() {
    let mut failover = Failover::new().await;
    kill(failover.watcher.pid(), Signal::SIGSTOP).unwrap();
    let began = Instant::now();
    failover.site.upstream.answer("a", text("1"));
    failover.taken_over(began).await;
    let database = failover.site._database.clone();
    let changes = "select count(*) from changes where kind = 'resource_touched'";
    let before = database.number(changes).await;
    kill(failover.watcher.pid(), Signal::SIGCONT).unwrap();
    assert_eq!(failover.stream.drain(QUIET).await, Vec::<String>::new());
    assert_eq!(database.number(changes).await, before);
    assert_ne!(holder(&database).await, Some(failover.holder));
}

#[tokio::test]
async fn expired_record_of_subscriptions_is_made_again() {
    let database = database().await;
    let site = Site::over(database.clone(), Builder::new(&database).start().await, polled()).await;
    site.upstream.answer("a", text("one"));
    site.resource("a", json!({"connection": "api", "path": "a"})).await;
    let mut stream = listening(&site.replica, &site.key, "test://a").await;
    stream.expect_events(&["updated test://a"]).await;
    // Just after it was extended, so that what is expired is read before it is extended again.
    let expires =
        async || database.number("select extract(epoch from max(expires_at))::int8 from watchers").await;
    let before = expires().await;
    eventually("it is extended", async || expires().await > before).await;
    let expire = "update watchers set expires_at = clock_timestamp() - interval '1 minute'; \
                  update leases set interest = interest + 1";
    database.execute(expire).await;
    let live = "select count(*) from watchers where expires_at > clock_timestamp()";
    eventually("it is live", async || database.number(live).await == 1).await;
    site.upstream.answer("a", text("two"));
    stream.expect_events(&["updated test://a"]).await;
    assert_eq!(site.text("test://a").await, "two");
}

#[tokio::test]
async fn lost_record_of_subscriptions_is_made_again_in_another_timeline() {
    let database = database().await;
    let site = Site::over(database.clone(), Builder::new(&database).start().await, polled()).await;
    site.upstream.answer("a", text("one"));
    site.resource("a", json!({"connection": "api", "path": "a"})).await;
    let mut stream = listening(&site.replica, &site.key, "test://a").await;
    stream.expect_events(&["updated test://a"]).await;
    database.execute("delete from watching; update gateway set epoch = gen_random_uuid()").await;
    let recorded = async || database.number("select count(*) from watching").await == 1;
    eventually("it is recorded again", recorded).await;
}
