//! Writers of one agent share transactions: each has its own revision and answer, and what one does wrong fails no other.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};
use waggle::model::system::FailPoint;

use crate::support::app::{Builder, Replica, gateway, resource};
use crate::support::cluster::{Database, database};
use crate::support::faults::FaultScript;
use crate::support::http::Answer;
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

/// The revisions of the agent `a`, and the transactions that they were written in.
const REVISIONS: &str = "select count(distinct revision) from changes where scope = (select uid from agents)";
const TRANSACTIONS: &str = "select count(distinct xid) from changes where scope = (select uid from agents)";

/// The audit rows of writes of resources.
const AUDITED: &str = "select count(*) from audit_log where method like 'PUT %' and revision is not null";

fn body(text: &str) -> Value {
    json!({"name": "n", "contents": [{"text": text}]})
}

/// Starts to write a resource of the agent `a`, under a precondition if it is not empty.
fn write(replica: &Arc<Replica>, uri: &str, text: &str, if_match: &str) -> JoinHandle<Answer> {
    let (replica, path) = (Arc::clone(replica), format!("/admin/v1{}", resource("a", uri)));
    let (body, tag) = (body(text).to_string(), if_match.to_owned());
    tokio::spawn(async move {
        let bearer = format!("Bearer {}", replica.operator);
        let mut headers = vec![("authorization", &*bearer), ("content-type", "application/json")];
        if !tag.is_empty() {
            headers.push(("if-match", &tag));
        }
        replica.http.send("PUT", &path, &headers, body).await
    })
}

/// A replica whose writes of the agent `a` can be held, and whose connections can be cut.
struct Site {
    database: Database,
    proxy: Proxy,
    faults: Arc<FaultScript>,
    replica: Arc<Replica>,
}

async fn site(resources: usize) -> Site {
    let (database, faults) = (database().await, FaultScript::new());
    let proxy = Proxy::before(&database.options).await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__RESOURCES_PER_AGENT", resources)
        .store(|store| store.connect = proxy.options.clone())
        .fault_injector(faults.clone());
    let replica = Arc::new(replica.start().await);
    replica.acme("a").await;
    Site { database, proxy, faults, replica }
}

impl Site {
    /// Starts writes while another one is about to commit. `meanwhile` begins once each waits for it.
    async fn write_together<T>(
        &self,
        writes: &[(&str, &str, &str)],
        meanwhile: impl AsyncFnOnce(&[JoinHandle<Answer>]) -> T,
    ) -> (Vec<JoinHandle<Answer>>, T) {
        let held = self.faults.hold(FailPoint::BeforeCommit);
        let holding = write(&self.replica, "x:0", "holds the turn", "");
        let together = held
            .meanwhile(async {
                let writers: Vec<_> =
                    writes.iter().map(|(uri, text, tag)| write(&self.replica, uri, text, tag)).collect();
                let tasks = self.replica.running.services.writer.tasks();
                eventually("each waits", async || tasks.len() == writes.len() + 1).await;
                let done = meanwhile(&writers).await;
                (writers, done)
            })
            .await;
        assert!(holding.await.unwrap().status.is_success());
        together
    }
}

async fn statuses(writers: Vec<JoinHandle<Answer>>) -> Vec<u16> {
    let mut statuses = Vec::new();
    for writer in writers {
        statuses.push(writer.await.unwrap().status.as_u16());
    }
    statuses
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_writers_of_an_agent_share_transactions() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    let replica = Arc::new(replica);
    let mut writers = JoinSet::new();
    for n in 0..16 {
        let replica = Arc::clone(&replica);
        writers.spawn(async move {
            let mut revisions = Vec::new();
            for round in 0..25 {
                revisions.push(replica.put("a", &format!("x:{n}"), &round.to_string()).await);
            }
            revisions
        });
    }
    let revisions: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
    let distinct: BTreeSet<_> = revisions.iter().copied().collect();
    assert_eq!(distinct, (2..=401).collect(), "each write has a revision of its own, without a gap");
    assert_eq!(database.number(REVISIONS).await, 401);
    eventually("each write has its audit row", async || database.number(AUDITED).await == 400).await;
    let transactions = database.number(TRANSACTIONS).await;
    println!("{transactions} transactions for 401 writes");
    assert!(transactions <= 200, "{transactions} transactions for 401 writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_precondition_in_a_shared_transaction_fails_no_other_write() {
    let site = site(100).await;
    let first = site.replica.put("a", "x:1", "one").await;
    let writes =
        [("x:1", "two", ""), ("x:2", "late", "\"999\""), ("x:3", "three", ""), ("x:0", "holds the turn", "")];
    let (writers, ()) = site.write_together(&writes, async |_| ()).await;
    assert_eq!(statuses(writers).await, [200, 412, 201, 200]);
    // The one that held the turn, and two more: the last one changed nothing.
    assert_eq!(site.database.number(REVISIONS).await, first + 3);
    assert_eq!(site.replica.put("a", "x:4", "next").await, first + 4);
    // Those of the agent, of the first write, of the one that held the turn, and of the last one, and of the others.
    let transactions = site.database.number(TRANSACTIONS).await;
    assert_eq!(transactions, 5, "the writes that waited did not share one");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_that_fails_after_its_first_statement_fails_no_other() {
    let site = site(3).await;
    site.replica.put("a", "x:1", "one").await;
    // With the one that holds the turn there is room for one of these.
    let writes =
        [("x:1", "two", ""), ("x:2", "t", ""), ("x:3", "t", ""), ("x:1", "three", ""), ("x:4", "t", "")];
    let (writers, ()) = site.write_together(&writes, async |_| ()).await;
    let statuses = statuses(writers).await;
    assert_eq!((statuses[0], statuses[3]), (200, 200));
    let added = [statuses[1], statuses[2], statuses[4]];
    assert_eq!(added.iter().filter(|status| **status == 201).count(), 1, "{added:?}");
    assert_eq!(added.iter().filter(|status| **status == 400).count(), 2, "{added:?}");
    assert_eq!(site.database.number("select count(*) from resources").await, 3);
    assert_eq!(site.database.number("select resource_count::bigint from agents").await, 3);
    assert_eq!(site.database.number(REVISIONS).await, 6);
    eventually("each write has its audit row", async || site.database.number(AUDITED).await == 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_a_lost_commit_are_all_refused() {
    let site = site(100).await;
    let first = site.replica.put("a", "x:1", "one").await;
    let writes = [("x:1", "two", ""), ("x:2", "two", ""), ("x:3", "two", "")];
    let (writers, held) =
        site.write_together(&writes, async |_| site.faults.hold(FailPoint::BeforeCommit)).await;
    held.meanwhile(site.proxy.cut()).await;
    assert_eq!(statuses(writers).await, [503; 3]);
    assert_eq!(site.database.number(REVISIONS).await, first + 1);
    assert_eq!(site.database.number("select count(*) from resources").await, 2);
    let written = site.replica.admin("PUT", &resource("a", "x:1"), Some(body("three"))).await;
    assert_eq!((written.status, written.revision()), (StatusCode::OK, first + 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_disconnects_loses_no_shared_write() {
    let site = site(100).await;
    let writes = [("x:1", "one", ""), ("x:2", "two", ""), ("x:3", "three", "")];
    let (mut writers, ()) = site.write_together(&writes, async |writers| writers[1].abort()).await;
    assert!(writers.remove(1).await.unwrap_err().is_cancelled());
    assert_eq!(statuses(writers).await, [201; 2]);
    let all = async || site.database.number("select count(*) from resources").await == 4;
    eventually("the write of the disconnected client is committed", all).await;
    assert_eq!(site.database.number(REVISIONS).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_transactions_do_not_deadlock_with_writes_of_outer_scopes() {
    let database = database().await;
    let (first, second) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    first.acme("a").await;
    first.agent("acme", "b").await;
    let replicas = [Arc::new(first), Arc::new(second)];
    let mut writers = JoinSet::new();
    for n in 0..16 {
        let replica = Arc::clone(&replicas[n % 2]);
        writers.spawn(async move {
            for round in 0..10 {
                replica.put(["a", "b"][n / 2 % 2], &format!("x:{n}"), &round.to_string()).await;
            }
        });
    }
    for n in 0..4 {
        let replica = Arc::clone(&replicas[n % 2]);
        writers.spawn(async move {
            for round in 0..10 {
                let title = json!({"title": format!("{n}-{round}")});
                let patched =
                    replica.admin("PATCH", &format!("/agents/{}", ["a", "b"][n / 2]), Some(title)).await;
                assert_eq!(patched.status, StatusCode::OK, "{}", patched.text());
                let (id, _) = replica.key("a", &["mcp"]).await;
                assert_eq!(
                    replica.admin("DELETE", &format!("/keys/{id}"), None).await.status,
                    StatusCode::NO_CONTENT
                );
                let agent = format!("c-{n}");
                replica.agent("acme", &agent).await;
                replica.put(&agent, "x:1", "t").await;
                let deleted = replica.admin("DELETE", &format!("/agents/{agent}"), None).await;
                assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.text());
            }
        });
    }
    writers.join_all().await;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(database.number(deadlocks).await, 0);
}
