//! Manifests wait in turn between tenants for a permit to be processed, and for a credential that is still valid.

use http::StatusCode;
use serde_json::json;
use sqlx::{Executor, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::wait::{DEADLINE, eventually};

/// The statements that wait for a lock.
const WAITING: &str =
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";

/// A gateway whose permits for manifests are all in use, by writes of agents whose heads are locked.
struct Site {
    replica: Replica,
    database: Database,
    /// Locks the head of one agent, and those of the others.
    locks: [PgConnection; 2],
    writing: Vec<JoinHandle<StatusCode>>,
}

/// A manifest that has arrived, and waits for a permit.
struct Waiting(TcpStream);

impl Site {
    async fn start(waiting: &[(&str, &str)]) -> Self {
        let database = database().await;
        let replica = Builder::new(&database).set("WAGGLE_DATABASE__LOCK_SECONDS", 60).start().await;
        for tenant in ["acme", "rival"] {
            replica.tenant(tenant).await;
        }
        let busy = ["a1", "a2", "a3", "a4"];
        for (tenant, agent) in busy.map(|agent| ("acme", agent)).iter().chain(waiting) {
            replica.agent(tenant, agent).await;
        }
        let mut locks = [database.connect().await, database.connect().await];
        for (lock, comparison) in locks.iter_mut().zip(["= 'a1'", "in ('a2', 'a3', 'a4')"]) {
            lock.execute("begin").await.unwrap();
            let heads = format!(
                "select from heads where scope in (select uid from agents where slug {comparison}) for update"
            );
            lock.execute(sqlx::AssertSqlSafe(heads)).await.unwrap();
        }
        let mut writing = Vec::new();
        for agent in busy {
            let (http, operator) = (replica.http.clone(), replica.operator.clone());
            let path = format!("/agents/{agent}/manifest");
            let put = async move { http.admin(&operator, "PUT", &path, Some(manifest())).await.status };
            writing.push(tokio::spawn(put));
        }
        let site = Self { replica, database, locks, writing };
        eventually("all permits are in use", async || site.database.number(WAITING).await == 4).await;
        site
    }

    /// Sends a manifest; returns once its body has arrived, after which it waits for a permit.
    async fn send(&self, agent: &str, key: &str) -> Waiting {
        let reserved = async || self.replica.metric("waggle_upload_bytes").await;
        let (before, body) = (reserved().await, manifest().to_string());
        let (first, rest) = body.split_at(1);
        let head = format!(
            "PUT /admin/v1/agents/{agent}/manifest HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\n{first}\r\n"
        );
        let mut stream = TcpStream::connect(self.replica.running.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        eventually("the longest body is reserved", async || reserved().await > before + 1e6).await;
        stream.write_all(format!("{:x}\r\n{rest}\r\n0\r\n\r\n", rest.len()).as_bytes()).await.unwrap();
        eventually("the body has arrived", async || reserved().await == before + body.len() as f64).await;
        Waiting(stream)
    }

    /// The waiting agents whose manifests were applied, in this order.
    async fn applied(&self) -> Vec<String> {
        let order = "select slug from changes join agents on agents.uid = scope where subject = 'x:1' \
                     and slug not like 'a%' order by changes.xid";
        sqlx::query_scalar(order).fetch_all(&mut self.database.connect().await).await.unwrap()
    }

    /// Ends the writes.
    async fn finish(self) {
        for mut lock in self.locks {
            lock.execute("commit").await.unwrap();
        }
        for write in self.writing {
            assert_eq!(write.await.unwrap(), StatusCode::OK);
        }
    }
}

impl Waiting {
    /// The status of the answer.
    async fn status(mut self) -> u16 {
        let mut answer = String::new();
        tokio::time::timeout(DEADLINE, self.0.read_to_string(&mut answer)).await.unwrap().unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

fn manifest() -> serde_json::Value {
    json!({"apiVersion": "waggle/v1", "resources": [{"uri": "x:1", "name": "n", "contents": []}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_manifests_are_served_in_turn_between_tenants() {
    let waiting = [("acme", "w1"), ("acme", "w2"), ("acme", "w3"), ("rival", "r1")];
    let mut site = Site::start(&waiting).await;
    let mut sent = Vec::new();
    for (_, agent) in waiting {
        sent.push(site.send(agent, &site.replica.operator).await);
    }
    site.locks[0].execute("commit").await.unwrap();
    for waiting in sent {
        assert_eq!(waiting.status().await, 200);
    }
    assert_eq!(site.applied().await, ["w1", "r1", "w2", "w3"]);
    site.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manifest_of_a_key_that_is_revoked_while_it_waits_is_refused() {
    let mut site = Site::start(&[("acme", "w1")]).await;
    let (id, key) = site.replica.key("w1", &["registry"]).await;
    let waiting = site.send("w1", &key).await;
    assert_eq!(site.replica.admin("DELETE", &format!("/keys/{id}"), None).await.status, 204);
    site.locks[0].execute("commit").await.unwrap();
    assert_eq!(waiting.status().await, 401);
    assert_eq!(site.applied().await, [""; 0]);
    site.finish().await;
}
