//! Sessions: their owners, content, and access from several replicas.

mod expiry;
mod group_commit;
mod holders;
mod pruning;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use serde_json::json;
use time::macros::datetime;
use waggle::identity::grant::{Caller, PresentedCredential};
use waggle::model::caller::Payer;
use waggle::model::client_address::ClientAddress;
use waggle::model::fault::Fault;
use waggle::model::ids::ResourceUri;
use waggle::model::key::SecretKey;
use waggle::model::scope::Revision;
use waggle::model::session::{LogLevel, ResourceSubscription, Session, SessionId};
use waggle::sessions::Sessions;
use waggle::sessions::open::{NewSession, OpenedSession};

use crate::support::app::{Builder, Replica, gateway};
use crate::support::clock::ManualClock;
use crate::support::cluster::database;
use crate::support::wait::eventually;

const CLIENT: NewSession<'static> = NewSession {
    version: "2025-11-25",
    client_name: "a client",
    client_version: "1.2",
    capabilities: r#"{"roots":{}}"#,
};

const LOCALHOST: ClientAddress = ClientAddress::Known(IpAddr::V4(Ipv4Addr::LOCALHOST));

pub(crate) fn uri(text: &str) -> ResourceUri {
    ResourceUri::parse(text).unwrap()
}

impl Replica {
    pub(crate) fn sessions(&self) -> &Arc<Sessions> {
        &self.running.services.sessions
    }

    /// Subscribes like `resources/subscribe`.
    pub(crate) async fn subscribe(
        &self,
        caller: &Caller,
        session: &Session,
        uri: &ResourceUri,
    ) -> Result<(), Fault> {
        self.running.services.catalog.view(caller).await?.check_readable(uri)?;
        self.sessions().subscribe(session, uri).await
    }

    /// The caller with this key, at an agent.
    pub(crate) async fn caller(&self, key: &str, agent: &str) -> Caller {
        let key = SecretKey::parse(key).unwrap();
        let grant = self
            .running
            .services
            .identity
            .identify(PresentedCredential::Key(&key, None), IpAddr::V4(Ipv4Addr::LOCALHOST).into())
            .await
            .unwrap();
        self.running.services.identity.admit(grant, LOCALHOST, agent).await.unwrap()
    }

    pub(crate) async fn open(&self, caller: &Caller) -> SessionId {
        self.sessions().open(caller, LOCALHOST, CLIENT).await.unwrap().into_id()
    }

    pub(crate) async fn found(&self, caller: &Caller, id: &SessionId) -> Arc<Session> {
        self.sessions().find(caller, id).await.unwrap()
    }

    pub(crate) async fn lost(&self, caller: &Caller, id: &SessionId) -> bool {
        self.sessions().find(caller, id).await == Err(Fault::SessionNotFound)
    }
}

#[tokio::test]
async fn session_keeps_the_negotiated_values() {
    let (database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let since = replica.put("a", "x:1", "one").await;
    let caller = replica.caller(&key, "a").await;
    let id = replica.open(&caller).await;
    let expected = Session {
        uid: id.uid(),
        tenant: caller.tenant,
        agent: caller.agent,
        principal: caller.grant.as_ref().map(|grant| grant.credential.principal),
        version: "2025-11-25".to_owned(),
        client_name: "a client".to_owned(),
        client_version: "1.2".to_owned(),
        level: None,
        streams_opened: 0,
        since: Revision(since),
        labels: Some(caller.labels().digest()),
        subscriptions: Vec::new(),
    };
    assert_eq!(*replica.found(&caller, &id).await, expected);
    assert_eq!(
        replica.sessions().current(Payer::Gateway, id.uid()).await.unwrap().as_deref(),
        Some(&expected)
    );
    let stored = format!("select count(*) from sessions where capabilities = '{}'", CLIENT.capabilities);
    assert_eq!(database.number(&stored).await, 1);
}

#[tokio::test]
async fn client_info_is_truncated() {
    let (_database, replica) = gateway().await;
    let caller = replica.caller(&replica.acme("a").await, "a").await;
    let (long, nul) = (format!("{}é", "x".repeat(511)), "a\0b".to_owned());
    let open = async |new: NewSession<'_>| {
        let opened = replica.sessions().open(&caller, LOCALHOST, new).await;
        opened.map(OpenedSession::into_id)
    };
    let cut = open(NewSession { client_name: &long, client_version: &long, ..CLIENT }).await.unwrap();
    let cut = replica.found(&caller, &cut).await;
    assert_eq!([&cut.client_name, &cut.client_version], [&"x".repeat(511), &"x".repeat(511)]);

    let refused = open(NewSession { client_name: &nul, ..CLIENT }).await.unwrap_err();
    assert_eq!(refused, Fault::invalid_params("clientInfo.name contains a NUL character"));
    let most = format!("[{}]", " ".repeat((64 << 10) - 2));
    assert!(open(NewSession { capabilities: &most, ..CLIENT }).await.is_ok());
    let more = format!("{most} ");
    let refused = open(NewSession { capabilities: &more, ..CLIENT }).await.unwrap_err();
    assert_eq!(refused, Fault::invalid_params("capabilities is longer than 65536 bytes"));
}

#[tokio::test]
async fn session_is_bound_to_its_principal_and_agent() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let open = Some(json!({"id": "b", "tenant": "acme", "access": "public"}));
    assert_eq!(replica.admin("POST", "/agents", open).await.status, 201);
    let owner = replica.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
    let owner = owner["key"].as_str().unwrap();
    let (_, other) = replica.key("a", &["mcp"]).await;

    let (mine, theirs) = (replica.caller(&key, "a").await, replica.caller(&other, "a").await);
    let (owner_a, owner_b) = (replica.caller(owner, "a").await, replica.caller(owner, "b").await);
    let anonymous = replica.running.services.identity.admit(None, LOCALHOST, "b").await.unwrap();
    let all = [&mine, &theirs, &owner_a, &owner_b, &anonymous];
    for (opener, caller) in all.iter().enumerate() {
        let id = replica.open(caller).await;
        for (other, caller) in all.iter().enumerate() {
            assert_eq!(replica.lost(caller, &id).await, opener != other, "{opener} {other}");
        }
    }
    let made_up = SessionId::parse(&"A".repeat(43)).unwrap();
    assert!(replica.lost(&mine, &made_up).await);
    assert_eq!(replica.sessions().current(Payer::Gateway, made_up.uid()).await, Ok(None));
}

#[tokio::test]
async fn session_survives_key_rotation() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let (key_id, key) = replica.key("a", &["mcp"]).await;
    let id = replica.open(&replica.caller(&key, "a").await).await;
    let grace = Some(json!({"graceSeconds": 0}));
    let rotated = replica.admin("POST", &format!("/keys/{key_id}/rotate"), grace).await.json();
    let rotated = replica.caller(rotated["key"].as_str().unwrap(), "a").await;
    assert_eq!(replica.found(&rotated, &id).await.uid, id.uid());
}

#[tokio::test]
async fn subscription_keeps_its_starting_revision() {
    let (database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let caller = replica.caller(&key, "a").await;
    replica.put("a", "x:2", "two").await;
    let body = json!({"name": "n", "template": "{{ a }}"});
    let path = format!("/agents/a/templates?uriTemplate={}", crate::support::app::encode("y:{a}"));
    assert_eq!(replica.admin("PUT", &path, Some(body)).await.status, 201);
    let id = replica.open(&caller).await;
    let session = replica.found(&caller, &id).await;
    let missing = replica.subscribe(&caller, &session, &uri("x:1")).await;
    assert_eq!(missing, Err(Fault::ResourceNotFound(uri("x:1"))));

    let first = replica.put("a", "x:1", "one").await;
    replica.subscribe(&caller, &session, &uri("x:2")).await.unwrap();
    let second = replica.put("a", "x:2", "two again").await;
    replica.subscribe(&caller, &session, &uri("y:any")).await.unwrap();
    replica.subscribe(&caller, &session, &uri("x:1")).await.unwrap();
    replica.put("a", "x:1", "one again").await;
    replica.subscribe(&caller, &session, &uri("x:1")).await.unwrap();
    let subscribed = |text: &str, since| ResourceSubscription { uri: uri(text), since: Revision(since) };
    let expected = [subscribed("x:1", second), subscribed("x:2", first), subscribed("y:any", second)];
    assert_eq!(replica.found(&caller, &id).await.subscriptions, expected);

    replica.sessions().unsubscribe(&session, &uri("x:2")).await.unwrap();
    replica.sessions().unsubscribe(&session, &uri("x:2")).await.unwrap();
    replica.sessions().unsubscribe(&session, &uri("x:3")).await.unwrap();
    let expected = [expected[0].clone(), expected[2].clone()];
    assert_eq!(replica.found(&caller, &id).await.subscriptions, expected);
    // A call without effect logs no change.
    let recorded = format!(
        "select count(*) from (select array_agg(kind || ' ' || subject || ' ' || revision order by revision) \
         as kinds from changes where scope = '{}') changes where kinds = array[ \
         'session_subscription x:2 2', 'session_subscription y:any 3', 'session_subscription x:1 4', \
         'session_subscription x:2 5']",
        id.uid()
    );
    assert_eq!(database.number(&recorded).await, 1);
}

#[tokio::test]
async fn subscription_limit_of_a_session_is_enforced() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SESSIONS__SUBSCRIPTIONS", 2).start().await;
    let caller = replica.caller(&replica.acme("a").await, "a").await;
    for n in 1..=3 {
        replica.put("a", &format!("x:{n}"), "text").await;
    }
    let session = replica.found(&caller, &replica.open(&caller).await).await;
    let subscribe = async |text: &str| replica.subscribe(&caller, &session, &uri(text)).await;
    for text in ["x:1", "x:2", "x:2"] {
        assert_eq!(subscribe(text).await, Ok(()), "{text}");
    }
    let full =
        Fault::invalid_params("the session's limit of subscriptions is reached; unsubscribe from one first");
    assert_eq!(subscribe("x:3").await, Err(full));
    replica.sessions().unsubscribe(&session, &uri("x:1")).await.unwrap();
    assert_eq!(subscribe("x:3").await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn session_is_served_and_updated_on_any_replica() {
    let database = database().await;
    let first = Builder::new(&database).start().await;
    // It receives changes by notification.
    let second = Builder::new(&database).set("WAGGLE_DATABASE__SWEEP_MS", 10_000).start().await;
    let key = first.acme("a").await;
    first.put("a", "x:1", "one").await;
    let (caller, caller_there) = (first.caller(&key, "a").await, second.caller(&key, "a").await);
    let id = first.open(&caller).await;
    let session = first.found(&caller, &id).await;
    assert_eq!(second.found(&caller_there, &id).await, session);
    let same_there = async |what: &str| {
        let now = first.found(&caller, &id).await;
        eventually(what, async || second.found(&caller_there, &id).await == now).await;
        now
    };

    first.subscribe(&caller, &session, &uri("x:1")).await.unwrap();
    assert_eq!(same_there("the subscription").await.subscriptions[0].uri, uri("x:1"));
    first.sessions().set_level(&session, LogLevel::Warning).await.unwrap();
    first.sessions().set_level(&session, LogLevel::Warning).await.unwrap();
    assert_eq!(same_there("the level").await.level, Some(LogLevel::Warning));

    let (taken, revision) = first.sessions().take_stream(&session).await.unwrap();
    assert_eq!((taken.streams_opened, revision), (1, Revision(4)), "the same level again was no change");
    assert_eq!(taken, same_there("the stream").await);
    let (taken, revision) = second.sessions().take_stream(&session).await.unwrap();
    assert_eq!((taken.streams_opened, taken.level, revision), (2, Some(LogLevel::Warning), Revision(5)));
    assert_eq!(second.found(&caller_there, &id).await, taken);
    eventually("the other stream", async || first.found(&caller, &id).await == taken).await;

    second.sessions().end(&taken).await.unwrap();
    second.sessions().end(&taken).await.unwrap();
    assert!(second.lost(&caller_there, &id).await);
    eventually("the end", async || first.lost(&caller, &id).await).await;
    assert_eq!(first.sessions().current(Payer::Gateway, id.uid()).await, Ok(None));
    let gone = Err(Fault::SessionNotFound);
    assert_eq!(first.subscribe(&caller, &session, &uri("x:1")).await, gone);
    assert_eq!(first.sessions().unsubscribe(&session, &uri("x:1")).await, gone);
    assert_eq!(first.sessions().set_level(&session, LogLevel::Error).await, gone);
    assert_eq!(first.sessions().take_stream(&session).await.err(), gone.err());
}

#[tokio::test]
async fn session_beyond_the_limit_ends_the_least_recently_used() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-01-01 0:00 UTC));
    let settings = Builder::new(&database).set("WAGGLE_SESSIONS__PER_PRINCIPAL", 2);
    let replica = settings.clock(clock.clone()).start().await;
    let key = replica.acme("a").await;
    replica.agent("acme", "b").await;
    let owner = replica.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
    let owner = owner["key"].as_str().unwrap();
    let others = [(&*key, "a"), (owner, "b")];
    let mut kept = Vec::new();
    for (key, agent) in others {
        let caller = replica.caller(key, agent).await;
        kept.push((replica.open(&caller).await, caller));
    }

    let caller = replica.caller(owner, "a").await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(replica.open(&caller).await);
        clock.advance(time::Duration::minutes(2));
    }
    // A use that is not persisted yet.
    assert!(!replica.lost(&caller, &ids[0]).await);
    clock.advance(time::Duration::minutes(2));
    ids.push(replica.open(&caller).await);
    let mut lost = Vec::new();
    for id in &ids {
        lost.push(replica.lost(&caller, id).await);
    }
    assert_eq!(lost, [false, true, false]);
    for (id, caller) in &kept {
        assert!(!replica.lost(caller, id).await, "of another principal, or at another agent");
    }
    let recorded = format!(
        "select count(*) from changes where scope = '{}' and kind = 'session_ended' and revision = 2",
        ids[1].uid()
    );
    assert_eq!(database.number(&recorded).await, 1, "its end is a logged change");
}

#[tokio::test]
async fn sessions_beyond_the_limit_are_ended_in_groups() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SESSIONS__PER_PRINCIPAL", 32).start().await;
    let key = replica.acme("a").await;
    let caller = replica.caller(&key, "a").await;
    for _ in 0..34 {
        replica.open(&caller).await;
    }
    let open = "select count(*) from sessions where ended_at is null";
    assert_eq!(database.number(open).await, 34);
    replica.open(&caller).await;
    assert_eq!(database.number(open).await, 32);
    let ended = "select count(*) from changes where kind = 'session_ended'";
    assert_eq!(database.number(ended).await, 3);
    let transactions = "select count(distinct xid) from changes where kind = 'session_ended'";
    assert_eq!(database.number(transactions).await, 1);

    futures_util::future::join_all((0..60).map(|_| replica.open(&caller))).await;
    let most = database.number(open).await;
    assert!((31..=34 + 16).contains(&most), "{most}, and no more were written at once than may be");
}
