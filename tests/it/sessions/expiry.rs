//! Expiry of idle sessions, and what keeps a session alive.

use std::sync::Arc;
use std::time::Duration as Span;

use time::Duration;
use time::macros::datetime;
use tokio_util::sync::CancellationToken;
use waggle::model::caller::Payer;
use waggle::model::fault::Fault;
use waggle::model::system::{Clock, FailPoint};

use crate::support::app::{Builder, Replica};
use crate::support::clock::ManualClock;
use crate::support::cluster::{Database, database};
use crate::support::faults::FaultScript;
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

/// Two replicas with the same clock, and an agent `a`.
struct Pair {
    database: Database,
    clock: Arc<ManualClock>,
    here: Replica,
    there: Replica,
    faults: Arc<FaultScript>,
    key: String,
}

async fn pair() -> Pair {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-01-01 0:00 UTC));
    let faults = FaultScript::new();
    let here = Builder::new(&database).clock(clock.clone()).fault_injector(faults.clone()).start().await;
    let there = Builder::new(&database).clock(clock.clone()).start().await;
    let key = here.acme("a").await;
    Pair { database, clock, here, there, faults, key }
}

async fn expire(replica: &Replica) {
    replica.sessions().expire(&CancellationToken::new()).await;
}

impl Pair {
    async fn open_sessions(&self) -> i64 {
        self.database.number("select count(*) from sessions where ended_at is null").await
    }

    /// Waits until a use at this time is persisted, for less time than the interval of the writer.
    async fn written(&self) {
        let now = self.clock.now().unix_timestamp();
        let noted = format!("select count(*) from sessions where extract(epoch from used_at) = {now}");
        let written = eventually("the use is written", async || self.database.number(&noted).await == 1);
        tokio::time::timeout(Span::from_secs(5), written).await.unwrap();
    }
}

#[tokio::test]
async fn session_expires_after_half_an_hour_without_use() {
    let pair = pair().await;
    let caller = pair.here.caller(&pair.key, "a").await;
    let id = pair.here.open(&caller).await;
    pair.clock.advance(Duration::seconds(1_799));
    pair.here.found(&caller, &id).await;
    pair.clock.advance(Duration::seconds(1_799));
    pair.here.found(&caller, &id).await;
    pair.clock.advance(Duration::seconds(1_800));
    assert!(pair.here.lost(&caller, &id).await);
    assert!(pair.there.lost(&pair.there.caller(&pair.key, "a").await, &id).await);
    assert_eq!(pair.open_sessions().await, 1, "it is refused before it is ended");
}

#[tokio::test]
async fn use_on_one_replica_keeps_a_session_alive_on_the_others() {
    let pair = pair().await;
    let (here, there) = (pair.here.caller(&pair.key, "a").await, pair.there.caller(&pair.key, "a").await);
    let id = pair.here.open(&here).await;
    pair.there.found(&there, &id).await;
    // After such a pause a use is persisted at once, since the next request may reach another replica.
    pair.clock.advance(Duration::seconds(1_700));
    pair.here.found(&here, &id).await;
    pair.written().await;
    pair.clock.advance(Duration::seconds(200));
    expire(&pair.there).await;
    pair.there.found(&there, &id).await;
    assert_eq!(pair.open_sessions().await, 1);
}

#[tokio::test]
async fn cached_session_is_served_without_database() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let clock = ManualClock::at(datetime!(2026-01-01 0:00 UTC));
    let away =
        Builder::new(&database).clock(clock.clone()).store(|store| store.connect = proxy.options.clone());
    let replica = away.set("WAGGLE_DATABASE__ACQUIRE_SECONDS", 1).start().await;
    let caller = replica.caller(&replica.acme("a").await, "a").await;
    let (known, unknown) = (replica.open(&caller).await, replica.open(&caller).await);
    replica.found(&caller, &known).await;
    proxy.swallow(true);
    let found = async |id| replica.sessions().find(&caller, id).await.map(|session| session.uid);
    assert_eq!(found(&known).await, Ok(known.uid()));
    assert_eq!(found(&unknown).await, Err(Fault::StorageUnavailable));
    clock.advance(Duration::seconds(1_800));
    assert_eq!(
        found(&known).await,
        Err(Fault::StorageUnavailable),
        "another replica may have recorded a use"
    );
}

#[tokio::test]
async fn open_stream_keeps_its_session_alive() {
    let pair = pair().await;
    let here = pair.here.caller(&pair.key, "a").await;
    let (id, other) = (pair.here.open(&here).await, pair.here.open(&here).await);
    pair.here.found(&here, &id).await;
    for _ in 0..8 {
        pair.clock.advance(Duration::seconds(400));
        // The first replica has the session in memory, the second does not.
        pair.here.sessions().note_use(id.uid());
        pair.there.sessions().note_use(other.uid());
        for replica in [&pair.here, &pair.there] {
            replica.sessions().write_uses().await;
        }
        expire(&pair.there).await;
    }
    assert_eq!(pair.open_sessions().await, 2);
    pair.here.found(&here, &id).await;
    pair.here.found(&here, &other).await;
}

#[tokio::test]
async fn session_use_is_written_at_most_once_a_minute() {
    let pair = pair().await;
    let caller = pair.here.caller(&pair.key, "a").await;
    let id = pair.here.open(&caller).await;
    let start = "select extract(epoch from used_at - created_at)::bigint from sessions";
    let mut written = Vec::new();
    for _ in 0..4 {
        pair.clock.advance(Duration::seconds(25));
        pair.here.found(&caller, &id).await;
        pair.here.sessions().write_uses().await;
        written.push(pair.database.number(start).await);
    }
    assert_eq!(written, [0, 0, 75, 75]);
    pair.here.running.stop().await;
    assert_eq!(pair.database.number(start).await, 100, "the last use is written when the gateway stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_end_for_all_replicas() {
    let pair = pair().await;
    let (here, there) = (pair.here.caller(&pair.key, "a").await, pair.there.caller(&pair.key, "a").await);
    let idle = pair.here.open(&here).await;
    pair.clock.advance(Duration::seconds(900));
    let used = pair.here.open(&here).await;
    // A read by the test does not count as a use.
    assert!(pair.there.sessions().current(Payer::Gateway, idle.uid()).await.unwrap().is_some());
    pair.clock.advance(Duration::seconds(900));
    expire(&pair.here).await;
    let ended = format!(
        "select count(*) from sessions s join changes c on c.scope = s.uid where s.uid = '{}' \
         and s.ended_at is not null and c.kind = 'session_ended' and c.subject = s.uid::text",
        idle.uid()
    );
    assert_eq!(pair.database.number(&ended).await, 1);
    assert_eq!(pair.open_sessions().await, 1);
    let gone =
        async |replica: &Replica| replica.sessions().current(Payer::Gateway, idle.uid()).await == Ok(None);
    assert!(gone(&pair.here).await);
    eventually("the end is known", async || gone(&pair.there).await).await;
    pair.there.found(&there, &used).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_are_ended_in_bulk_by_one_replica() {
    let pair = pair().await;
    let here = pair.here.caller(&pair.key, "a").await;
    for _ in 0..150 {
        pair.here.open(&here).await;
    }
    pair.clock.advance(Duration::seconds(1_800));
    let held = pair.faults.hold(FailPoint::BeforeCommit);
    let ending = expire(&pair.here);
    let meanwhile = held.meanwhile(async {
        // The first replica has locked some of them; the second leaves all to it.
        expire(&pair.there).await;
        assert_eq!(pair.open_sessions().await, 150);
    });
    tokio::join!(ending, meanwhile);
    assert_eq!(pair.open_sessions().await, 0);
    let ends = "select count(*) from changes where kind = 'session_ended' and revision = 2";
    assert_eq!(pair.database.number(ends).await, 150, "each has ended once");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_are_ended_in_the_background() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SESSIONS__IDLE_SECONDS", 2).start().await;
    let caller = replica.caller(&replica.acme("a").await, "a").await;
    let (idle, used) = (replica.open(&caller).await, replica.open(&caller).await);
    let ended =
        format!("select count(*) from sessions where uid = '{}' and ended_at is not null", idle.uid());
    eventually("the idle one ends", async || {
        replica.found(&caller, &used).await;
        database.number(&ended).await == 1
    })
    .await;
    assert_eq!(database.number("select count(*) from sessions where ended_at is null").await, 1);
}

#[tokio::test]
async fn ended_session_is_purged_with_its_head() {
    let pair = pair().await;
    let caller = pair.here.caller(&pair.key, "a").await;
    pair.here.put("a", "x:1", "one").await;
    let session = pair.here.found(&caller, &pair.here.open(&caller).await).await;
    pair.here.subscribe(&caller, &session, &super::uri("x:1")).await.unwrap();
    pair.here.sessions().end(&session).await.unwrap();
    let rows = format!(
        "select (select count(*) from sessions) + (select count(*) from subscriptions) \
         + (select count(*) from heads where scope = '{}')",
        session.uid
    );
    let purge = async || pair.here.running.services.maintenance.purge(&CancellationToken::new()).await;
    pair.clock.advance(Duration::minutes(30));
    purge().await;
    assert_eq!(pair.database.number(&rows).await, 3);
    pair.clock.advance(Duration::seconds(1));
    purge().await;
    assert_eq!(pair.database.number(&rows).await, 0);
}

#[tokio::test]
async fn deleted_agent_is_purged_with_its_sessions() {
    let pair = pair().await;
    let caller = pair.here.caller(&pair.key, "a").await;
    for _ in 0..3 {
        pair.here.open(&caller).await;
    }
    assert_eq!(pair.here.admin("DELETE", "/agents/a", None).await.status, 204);
    let refused = pair.here.sessions().open(&caller, super::LOCALHOST, super::CLIENT).await;
    assert_eq!(refused.err(), Some(Fault::Forbidden));
    pair.clock.advance(Duration::minutes(31));
    pair.here.running.services.maintenance.purge(&CancellationToken::new()).await;
    let rows = "select (select count(*) from sessions) + (select count(*) from agents)";
    assert_eq!(pair.database.number(rows).await, 0);
    // The heads of the gateway, of its connections and of the tenant remain.
    assert_eq!(pair.database.number("select count(*) from heads").await, 3);
}
