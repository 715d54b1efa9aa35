//! The change feed alone, with a memory that the test makes up.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Executor};
use tokio::task::yield_now;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use uuid::Uuid;
use waggle::feed::{Feed, FeedOptions};
use waggle::model::audience::Audience;
use waggle::model::feed::{BoxFuture, Follower, ServedAnew};
use waggle::model::ids::{AgentId, AgentRef, ResourceUri, TenantId};
use waggle::model::label::CallerLabels;
use waggle::model::scope::{Change, Revision, Scope};
use waggle::model::scope_changes::ScopeChanges;
use waggle::model::system::{FailPoint, FaultInjector, System};
use waggle::store::Store;

use crate::support::cluster::{Database, database, store_options};
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

/// The timeout of a sweep here.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long the comparison of a batch of revisions takes.
const BATCH_TAKES: Duration = Duration::from_millis(150);
/// Their comparison takes longer than the timeout of a sweep.
const SCOPES: u128 = 12_000;

/// Scopes at revision 5, until they are forgotten.
#[derive(Default)]
struct Memory {
    forgotten: AtomicUsize,
}

fn scope(number: u128) -> Scope {
    // None of the gateway's own scopes, which have the lowest numbers.
    Scope(Uuid::from_u128(1 << 64 | number))
}

impl Follower for Memory {
    fn raise(&self, _: Scope, _: Revision) -> bool {
        false
    }

    fn applied(&self, _: Scope) -> Option<Revision> {
        None
    }

    fn held(&self) -> Vec<(Scope, Revision)> {
        if self.forgotten.load(Ordering::SeqCst) > 0 {
            return Vec::new();
        }
        (0..SCOPES).map(|number| (scope(number), Revision(5))).collect()
    }

    fn forget_all(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
    }

    fn catch_up(&self, _: Scope) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn apply_changes(&self, _: AgentId, _: Revision) -> BoxFuture<'_, Option<ScopeChanges>> {
        Box::pin(async { None })
    }

    fn next_read(&self, _: Scope) -> Option<(AgentRef, Revision)> {
        None
    }

    fn offers_prompt_tools(&self, _: TenantId, _: AgentId, _: Revision) -> BoxFuture<'_, bool> {
        Box::pin(async { true })
    }

    fn served<'a>(
        &'a self,
        _: TenantId,
        _: AgentId,
        _: &'a [(Change, Audience)],
        _: &'a [ResourceUri],
        _: &'a HashSet<CallerLabels>,
    ) -> BoxFuture<'a, Vec<ServedAnew>> {
        Box::pin(async { Vec::new() })
    }
}

/// Makes the comparison of each batch take a while.
struct SlowComparison;

impl FaultInjector for SlowComparison {
    fn pause(&self, point: FailPoint) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let takes = if point == FailPoint::Comparison { BATCH_TAKES } else { Duration::ZERO };
        Box::pin(async move {
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
        })
    }

    fn fails(&self, _: FailPoint) -> bool {
        false
    }
}

struct Running {
    feed: Arc<Feed>,
    memory: Arc<Memory>,
    _stop: DropGuard,
}

fn feed(options: &PgConnectOptions, timeout: Duration) -> Arc<Feed> {
    let system = System { fault_injector: Some(Arc::new(SlowComparison)), ..System::real() };
    let (probe, sweep) = (Duration::from_millis(250), Duration::from_millis(200));
    let options_of_feed = FeedOptions {
        probe,
        sweep,
        notify: Duration::from_millis(3),
        timeout,
        stale: timeout,
        traces: false,
    };
    let store = Store::new(store_options(options.clone()));
    Arc::new(Feed::new(store, system, Uuid::new_v4(), options_of_feed))
}

impl Running {
    /// Starts a feed, and waits until it has swept.
    async fn start(options: &PgConnectOptions) -> Self {
        let (feed, memory) = (feed(options, TIMEOUT), Arc::new(Memory::default()));
        let stop = CancellationToken::new();
        let follower = Arc::downgrade(&memory);
        feed.start(follower as Weak<dyn Follower>, &TaskTracker::new(), &stop);
        let running = Self { feed, memory, _stop: stop.drop_guard() };
        eventually("it sweeps", async || running.feed.stats().sweeps > 0).await;
        running
    }
}

async fn add_head(database: &Database, scope: Scope, revision: i64) {
    let Scope(scope) = scope;
    let insert = format!("insert into heads (scope, revision, floor) values ('{scope}', {revision}, 0)");
    database.execute(&insert).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_compared_on_a_new_connection_over_several_sweeps() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    add_head(&database, scope(0), 5).await;
    let running = Running::start(&proxy.options).await;
    for _ in 0..2 {
        proxy.cut().await;
        let failed = running.feed.stats().failed_sweeps;
        eventually("a sweep is not enough", async || running.feed.stats().failed_sweeps > failed).await;
        let succeeded = running.feed.stats().sweeps;
        eventually("sweeps succeed again", async || running.feed.stats().sweeps > succeeded).await;
    }
    assert_eq!(running.feed.stats().timeline_changes, 0);
    assert_eq!(running.memory.forgotten.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn epoch_is_renewed_once_the_database_permits_it() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    Store::new(store_options(database.options.clone())).cursor_secret([0; 32]).await.unwrap();
    add_head(&database, scope(SCOPES / 2), 4).await;
    let running = Running::start(&proxy.options).await;
    let refuse = "create table epochs as select epoch from gateway; \
                  create function refuse() returns trigger language plpgsql as \
                  $$ begin raise exception 'refused'; end $$; \
                  create trigger refuse before update on gateway for each row execute function refuse()";
    database.execute(refuse).await;
    proxy.cut().await;
    let forgotten = async || running.memory.forgotten.load(Ordering::SeqCst) == 1;
    eventually("the lost revision is noticed", forgotten).await;
    let succeeded = running.feed.stats().sweeps;
    eventually("sweeps succeed", async || running.feed.stats().sweeps > succeeded + 1).await;
    database.execute("drop trigger refuse on gateway").await;
    let renewed = "select count(*) from gateway where epoch not in (select epoch from epochs)";
    eventually("the epoch is renewed", async || database.number(renewed).await == 1).await;
}

#[tokio::test]
async fn cancelled_reader_of_heads_does_not_fail_others() {
    let database = database().await;
    let agent = AgentId(scope(1).0);
    add_head(&database, Scope::from(agent), 5).await;
    let feed = feed(&database.options, Duration::from_mins(1));
    let mut lock = database.connect().await;
    lock.execute(AssertSqlSafe("begin; lock table heads in access exclusive mode".to_owned())).await.unwrap();
    let mut readers = Vec::new();
    // The first reads alone, the others together after it.
    for _ in 0..3 {
        let feed = Arc::clone(&feed);
        readers.push(tokio::spawn(async move { feed.head(agent).await }));
    }
    for _ in 0..2 {
        // On one thread: each reader has got as far as it can.
        for _ in 0..10 {
            yield_now().await;
        }
        let reader = readers.remove(0);
        reader.abort();
        assert!(reader.await.unwrap_err().is_cancelled());
    }
    lock.execute(AssertSqlSafe("commit".to_owned())).await.unwrap();
    assert_eq!(readers.remove(0).await.unwrap(), Ok(Revision(5)));
}
