//! Manifests wait in turn between tenants for a permit to be processed, of which a tenant has a share, and for a credential
//! that is still valid.

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

/// Agents of two tenants, whose manifests use all permits.
const OF_TWO_TENANTS: [(&str, &str); 4] = [("acme", "a1"), ("acme", "a2"), ("rival", "a3"), ("rival", "a4")];

/// A gateway whose permits for manifests are in use, by writes of agents whose heads are locked.
struct Site {
    replica: Replica,
    database: Database,
    /// Locks the head of the first writing agent, and those of the others.
    locks: [PgConnection; 2],
    writing: Vec<JoinHandle<StatusCode>>,
}

/// A manifest that has arrived, and waits for a permit.
struct Waiting(TcpStream);

impl Site {
    /// Starts with the manifests of the busy agents in progress.
    async fn start(busy: &[(&str, &'static str)], waiting: &[(&str, &str)]) -> Self {
        let database = database().await;
        let replica = Builder::new(&database).store(|options| options.lock = DEADLINE).start().await;
        for tenant in ["acme", "rival", "third"] {
            replica.tenant(tenant).await;
        }
        for (tenant, agent) in busy.iter().chain(waiting) {
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
        for (_, agent) in busy {
            let (http, operator) = (replica.http.clone(), replica.operator.clone());
            let path = format!("/agents/{agent}/manifest");
            let put = async move { http.admin(&operator, "PUT", &path, Some(manifest())).await.status };
            writing.push(tokio::spawn(put));
        }
        let site = Self { replica, database, locks, writing };
        let held = i64::try_from(busy.len()).unwrap();
        eventually("the permits are in use", async || site.database.number(WAITING).await == held).await;
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
    let waiting = [("acme", "w1"), ("acme", "w2"), ("acme", "w3"), ("third", "t1")];
    let mut site = Site::start(&OF_TWO_TENANTS, &waiting).await;
    let mut sent = Vec::new();
    for (_, agent) in waiting {
        sent.push(site.send(agent, &site.replica.operator).await);
    }
    site.locks[0].execute("commit").await.unwrap();
    for waiting in sent {
        assert_eq!(waiting.status().await, 200);
    }
    assert_eq!(site.applied().await, ["w1", "t1", "w2", "w3"]);
    site.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_with_its_share_of_permits_leaves_permits_to_others() {
    let busy = [("acme", "a1"), ("acme", "a2")];
    let site = Site::start(&busy, &[("acme", "a3"), ("acme", "a4"), ("rival", "r1")]).await;
    let sent = [site.send("a3", &site.replica.operator).await, site.send("a4", &site.replica.operator).await];
    let applied = site.replica.admin("PUT", "/agents/r1/manifest", Some(manifest())).await;
    assert_eq!(applied.status, StatusCode::OK, "{}", applied.text());
    assert_eq!(site.applied().await, ["r1"]);
    assert_eq!(site.database.number(WAITING).await, 2);
    site.finish().await;
    for waiting in sent {
        assert_eq!(waiting.status().await, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn manifest_of_a_key_that_is_revoked_while_it_waits_is_refused() {
    let mut site = Site::start(&OF_TWO_TENANTS, &[("acme", "w1")]).await;
    let (id, key) = site.replica.key("w1", &["registry"]).await;
    let waiting = site.send("w1", &key).await;
    assert_eq!(site.replica.admin("DELETE", &format!("/keys/{id}"), None).await.status, 204);
    site.locks[0].execute("commit").await.unwrap();
    assert_eq!(waiting.status().await, 401);
    assert_eq!(site.applied().await, [""; 0]);
    site.finish().await;
}
