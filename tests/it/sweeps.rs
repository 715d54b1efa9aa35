//! Sweeps read each committed change once, with any transactions open, and miss none.

use std::time::{Duration, Instant};

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor};
use tokio_util::sync::CancellationToken;
use tracing::Level;
use uuid::Uuid;
use waggle::model::scope::{Revision, Scope};
use waggle::model::system::FailPoint;
use waggle::store::Store;
use waggle::store::changes::SweepConnection;
use waggle::store::horizon::Horizon;

use crate::support::app::{Builder, Replica, gateway};
use crate::support::cluster::{Database, database, store_options};
use crate::support::errors::ErrorLog;
use crate::support::faults::{Fault, FaultScript};
use crate::support::wait::eventually;

/// A sweep returns this many revisions per transaction of [`commit_changes`].
const SCOPES: usize = 1_000;

struct Sweeper {
    connection: SweepConnection,
    horizon: Horizon,
}

impl Sweeper {
    async fn start(database: &Database) -> Self {
        let store = Store::new(store_options(database.options.clone()));
        let mut connection = store.sweep_connection().await.unwrap();
        let horizon = connection.sweep(None).await.unwrap().horizon;
        Self { connection, horizon }
    }

    async fn sweep(&mut self) -> Vec<(Scope, Revision)> {
        let swept = self.connection.sweep(Some(&self.horizon)).await.unwrap();
        self.horizon = swept.horizon;
        swept.heads
    }

    async fn scopes(&mut self) -> Vec<Scope> {
        self.sweep().await.into_iter().map(|(scope, _)| scope).collect()
    }
}

async fn run(connection: &mut PgConnection, sql: &str) {
    connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
}

/// Begins a transaction that has an id.
async fn begin(database: &Database) -> PgConnection {
    let mut connection = database.connect().await;
    run(&mut connection, "begin; select pg_current_xact_id()").await;
    connection
}

/// Adds a change of a new scope, which is none of the gateway's own: those have the lowest numbers.
async fn change(connection: &mut PgConnection, number: u128) -> Scope {
    let scope = Uuid::from_u128(1 << 64 | number);
    let change = format!(
        "insert into heads (scope, revision, floor) values ('{scope}', 1, 0); \
         insert into changes (scope, revision, ordinal, kind, subject) \
         values ('{scope}', 1, 0, 'resource_touched', 'x:1')"
    );
    run(connection, &change).await;
    Scope(scope)
}

/// Commits 50 transactions with a change of each of 1,000 scopes.
async fn commit_changes(database: &Database) {
    let mut connection = database.connect().await;
    let insert = "insert into heads (scope, revision, floor) select gen_random_uuid(), 50, 0 \
                  from generate_series(1, 1000)";
    run(&mut connection, insert).await;
    for revision in 1..=50 {
        let insert = format!(
            "insert into changes (scope, revision, ordinal, kind, subject) \
             select scope, {revision}, 0, 'resource_touched', 'x:1' from heads where revision = 50"
        );
        run(&mut connection, &insert).await;
    }
}

async fn prune(replica: &Replica) {
    replica.running.services.maintenance.prune_changes(&CancellationToken::new()).await;
}

#[tokio::test]
async fn changes_behind_a_transaction_of_another_database_are_read_once() {
    let (database, other) = (database().await, database().await);
    let mut open = begin(&other).await;
    let mut sweeper = Sweeper::start(&database).await;
    commit_changes(&database).await;
    assert_eq!(database.number("select count(*) from changes").await, 50 * SCOPES as i64);
    let found = sweeper.sweep().await;
    assert_eq!(found.len(), SCOPES);
    assert!(found.iter().all(|(_, revision)| *revision == Revision(50)));
    for _ in 0..3 {
        assert_eq!(sweeper.sweep().await.len(), 0);
    }
    run(&mut open, "commit").await;
    assert_eq!(sweeper.sweep().await.len(), 0);
}

#[tokio::test]
async fn late_commits_are_found_once_among_younger_ones() {
    let database = database().await;
    let (mut committed, mut rolled_back) = (begin(&database).await, begin(&database).await);
    // A subtransaction has an id of its own, which no snapshot lists.
    run(&mut committed, "savepoint inner_one").await;
    let late = change(&mut committed, 1).await;
    run(&mut committed, "release inner_one").await;
    change(&mut rolled_back, 2).await;
    let mut sweeper = Sweeper::start(&database).await;
    let mut young = database.connect().await;
    let first = change(&mut young, 3).await;
    assert_eq!(sweeper.scopes().await, [first]);
    run(&mut committed, "commit").await;
    assert_eq!(sweeper.scopes().await, [late]);
    run(&mut rolled_back, "rollback").await;
    let second = change(&mut young, 4).await;
    assert_eq!(sweeper.scopes().await, [second]);
    assert_eq!(sweeper.scopes().await, []);
}

#[tokio::test]
async fn pruned_changes_of_a_late_commit_make_the_sweep_return_all_heads() {
    let (database, replica) = gateway().await;
    let other = crate::support::cluster::database().await;
    let mut elsewhere = begin(&other).await;
    let mut late = begin(&database).await;
    change(&mut late, 1).await;
    let mut sweeper = Sweeper::start(&database).await;
    let old = "update changes set at = at - interval '2 days'";
    let mut young = database.connect().await;
    let scope = change(&mut young, 2).await;
    assert_eq!(sweeper.scopes().await, [scope]);
    database.execute(old).await;
    prune(&replica).await;
    // Transactions of other databases that have ended since the last sweep may make one return everything.
    let nothing = async || sweeper.sweep().await.is_empty();
    eventually("what is still in progress cannot have been pruned", nothing).await;

    run(&mut late, "commit").await;
    database.execute(old).await;
    prune(&replica).await;
    assert_eq!(database.number("select count(*) from changes").await, 0);
    let heads = database.number("select count(*) from heads").await;
    assert_eq!(i64::try_from(sweeper.sweep().await.len()).unwrap(), heads);
    eventually("everything is returned once", async || sweeper.sweep().await.is_empty()).await;
    run(&mut elsewhere, "commit").await;
}

/// What a database looks like that was dumped from a server with higher transaction ids.
const RESTORED: &str = "update changes set xid = (xid::text::bigint + 1000000000)::text::xid8; \
                        update gateway set pruned_xid = '1000000000'";

#[tokio::test]
async fn transaction_ids_restored_from_another_server_are_renewed() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    commit_changes(&database).await;
    database.execute(RESTORED).await;
    let mut sweeper = Sweeper::start(&database).await;
    assert!(sweeper.sweep().await.len() > SCOPES, "each sweep finds everything until the ids are renewed");
    let before = database.number("select count(*) from changes").await;

    prune(&replica).await;
    let found = sweeper.sweep().await;
    assert!(found.len() > SCOPES, "once more, since others may not have seen them");
    // Transactions of other databases that have ended since the last sweep may make one return everything, but no less.
    let is_exactly = |found: usize, expected: usize| {
        assert!(found == expected || found > SCOPES, "{found} instead of {expected}");
        found == expected
    };
    eventually("nothing is found again", async || is_exactly(sweeper.sweep().await.len(), 0)).await;
    assert_eq!(database.number("select count(*) from changes").await, before);
    let mut writes = 0;
    eventually("only what was written is found", async || {
        writes += 1;
        replica.put("a", "x:1", &format!("text {writes}")).await;
        is_exactly(sweeper.sweep().await.len(), 1)
    })
    .await;
}

#[tokio::test]
async fn long_transaction_of_another_database_is_measured_and_named() {
    let (_database, replica) = gateway().await;
    let other = database().await;
    let mut open = begin(&other).await;
    let began = Instant::now();
    let xid: i64 =
        sqlx::query_scalar("select pg_current_xact_id()::text::bigint").fetch_one(&mut open).await.unwrap();
    let age = async || replica.metric("waggle_database_oldest_transaction_seconds").await;
    eventually("its age is measured", async || age().await >= 2.0).await;
    assert!(began.elapsed() > Duration::from_secs(1));

    let mut sweeper = Sweeper::start(&other).await;
    let owner = sweeper.connection.transaction_owner(u64::try_from(xid).unwrap()).await.unwrap().unwrap();
    assert_eq!(owner.database.as_deref(), other.options.get_database());
    assert_eq!(owner.state.as_deref(), Some("idle in transaction"));
    run(&mut open, "commit").await;
    assert_eq!(sweeper.connection.transaction_owner(u64::try_from(xid).unwrap()).await.unwrap(), None);
}

#[tokio::test]
async fn expiry_of_memory_and_its_end_are_logged_once() {
    let log = ErrorLog::of(Level::INFO);
    let (database, faults) = (database().await, FaultScript::new());
    let stale = ("WAGGLE_ACCESS__STALE_SECONDS", 1);
    let replica = Builder::new(&database).set(stale.0, stale.1).fault_injector(faults.clone()).start().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "read").await;
    // Of sweeps that a busy machine delayed.
    log.take();
    faults.fail(FailPoint::Sweep, Fault::Refused);
    eventually("memory expires", async || !log.with("memory expired").is_empty()).await;
    let arrived = faults.arrivals(FailPoint::Sweep);
    eventually("sweeps fail again", async || faults.arrivals(FailPoint::Sweep) > arrived + 2).await;
    assert_eq!(replica.http.text("a", &key, "x:1").await, None);
    faults.fail(FailPoint::Sweep, Fault::None);
    eventually("it is current again", async || log.with("memory is current").len() == 1).await;
    assert_eq!(
        log.with("message=memory ")[..2],
        [
            " message=memory expired; refusing requests until a sweep succeeds stale_seconds=1",
            " message=memory is current again; requests are answered"
        ]
    );
    eventually("it answers", async || replica.http.text("a", &key, "x:1").await.is_some()).await;
}
