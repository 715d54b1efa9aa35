//! A key, agent or tenant that is narrowed stays so on the replica that narrowed it, even if the database then becomes
//! unreachable.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use waggle::model::system::FailPoint;

use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::faults::FaultScript;
use crate::support::proxy::Proxy;

/// A replica whose database can be cut off while notifications still arrive, with an agent of `acme` and one of
/// `other`.
struct Fixture {
    _database: Database,
    replica: Replica,
    faults: std::sync::Arc<FaultScript>,
    proxy: Proxy,
    /// A key that is not changed.
    control: String,
}

impl Fixture {
    async fn new() -> Self {
        let database = database().await;
        let (proxy, faults) = (Proxy::before(&database.options).await, FaultScript::new());
        let replica = Builder::new(&database)
            .set("WAGGLE_DATABASE__ACQUIRE_SECONDS", 1)
            .set("WAGGLE_DATABASE__STATEMENT_SECONDS", 3)
            .store(|store| {
                store.acquire = Duration::from_secs(1);
                store.connect = proxy.options.clone();
            })
            .fault_injector(faults.clone())
            .start()
            .await;
        replica.tenant("acme").await;
        replica.tenant("other").await;
        replica.agent("other", "b").await;
        let control = replica.key("b", &["mcp"]).await.1;
        Self { _database: database, replica, faults, proxy, control }
    }

    async fn status(&self, agent: &str, key: &str) -> StatusCode {
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        self.replica.http.post(agent, key, &ping).await.status
    }

    /// Cuts off the database right after a commit; returns the status of the call, and those of the narrowed key and of
    /// the other one, which is answered from memory.
    async fn cut_after_commit(
        &self,
        call: (&str, &str, Option<Value>),
        agent: &str,
        key: &str,
    ) -> [StatusCode; 3] {
        assert_eq!(
            [self.status(agent, key).await, self.status("b", &self.control).await],
            [StatusCode::OK; 2]
        );
        let held = self.faults.hold(FailPoint::AfterCommit);
        let (method, path, body) = call;
        let (done, ()) = tokio::join!(
            self.replica.admin(method, path, body),
            held.meanwhile(async { self.proxy.swallow(true) })
        );
        [done.status, self.status(agent, key).await, self.status("b", &self.control).await]
    }

    async fn restore(&self) {
        self.proxy.swallow(false);
        tokio::time::timeout(Duration::from_secs(30), self.replica.ready()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn narrowed_key_holds_when_the_database_then_goes_away() {
    let fixture = Fixture::new().await;
    let narrowings = [
        "revoke",
        "rotate",
        "disable",
        "delete agent",
        "max age",
        "limits of the key",
        "limits of the agent",
        "limits of the tenant",
    ];
    for (nth, what) in narrowings.into_iter().enumerate() {
        let agent = format!("a{nth}");
        fixture.replica.agent("acme", &agent).await;
        let (id, key) = fixture.replica.key(&agent, &["mcp"]).await;
        let [of_key, of_agent] = [format!("/keys/{id}"), format!("/agents/{agent}")];
        let rotate = format!("{of_key}/rotate");
        let slow = json!({"limits": {"perSecond": 1, "burst": 5}});
        let call = match what {
            "revoke" => ("DELETE", of_key.as_str(), None),
            "rotate" => ("POST", rotate.as_str(), Some(json!({"graceSeconds": 0}))),
            "disable" => ("PATCH", of_agent.as_str(), Some(json!({"enabled": false}))),
            "delete agent" => ("DELETE", of_agent.as_str(), None),
            "max age" => ("PATCH", "/tenants/acme", Some(json!({"maxKeyAgeDays": 1}))),
            "limits of the key" => ("PATCH", of_key.as_str(), Some(slow.clone())),
            "limits of the agent" => ("PATCH", of_agent.as_str(), Some(slow.clone())),
            _ => ("PATCH", "/tenants/acme", Some(slow.clone())),
        };
        let [done, narrowed, control] = fixture.cut_after_commit(call, &agent, &key).await;
        assert!(done.is_success(), "{what}: {done}");
        assert_eq!(control, StatusCode::OK, "{what}: memory is answered for a while");
        assert_eq!(narrowed, StatusCode::SERVICE_UNAVAILABLE, "{what}");
        fixture.restore().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uncertain_revocation_is_not_answered_from_memory() {
    let fixture = Fixture::new().await;
    fixture.replica.agent("acme", "a").await;
    let (id, key) = fixture.replica.key("a", &["mcp"]).await;
    assert_eq!(
        [fixture.status("a", &key).await, fixture.status("b", &fixture.control).await],
        [StatusCode::OK; 2]
    );
    let held = fixture.faults.hold(FailPoint::AfterCommit);
    let (http, operator) = (fixture.replica.http.clone(), fixture.replica.operator.clone());
    let revoking =
        tokio::spawn(async move { http.admin(&operator, "DELETE", &format!("/keys/{id}"), None).await });
    // It is committed, but after the deadline of the write, so the replica cannot know.
    held.meanwhile(async {
        fixture.proxy.swallow(true);
        assert_eq!(revoking.await.unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
    })
    .await;
    assert_eq!(fixture.status("a", &key).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(fixture.status("b", &fixture.control).await, StatusCode::OK, "memory is answered for a while");
    fixture.restore().await;
    assert_eq!(fixture.status("a", &key).await, StatusCode::UNAUTHORIZED);
}
