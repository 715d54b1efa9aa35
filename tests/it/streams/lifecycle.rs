//! Each cause ends a stream in time, and an open stream keeps its session alive, for idle, busy and stopped readers.

mod reader;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use reader::StreamSocket;

use crate::support::app::{Builder, Replica, encode, gateway};
use crate::support::clock::ShiftedClock;
use crate::support::cluster::{Database, database};
use crate::support::events::{Session, listen};
use crate::support::issuer::Issuer;
use crate::support::proxy::Proxy;
use crate::support::signer::Signer;
use crate::support::wait::eventually;
use crate::tokens::{believing, claims_for, with};

/// Far longer than any of the ends takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval of comments in seconds, and half of it.
const INTERVAL: u64 = 2;
const BUSY: Duration = Duration::from_secs(1);
/// Subscriptions of a reader that stops, and the bytes of each URI: a round of events is 400 KB.
const MANY: usize = 200;
const LONG: usize = 2_000;
/// The time by which the clock is moved, and the lifetime of what ends by that.
const SHIFT: time::Duration = time::Duration::hours(1);
const HALF: time::Duration = time::Duration::minutes(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    RotationGrace,
    Revocation,
    Expiry,
    DisabledAgent,
    EndedSession,
    TokenExpiry,
    WithdrawnIssuerKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Quiet,
    Busy,
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

use Rule::{DisabledAgent, EndedSession, Expiry, Revocation, RotationGrace, TokenExpiry, WithdrawnIssuerKey};

fn cases() -> Vec<(Rule, Reader, Era)> {
    let rules =
        [RotationGrace, Revocation, Expiry, DisabledAgent, EndedSession, TokenExpiry, WithdrawnIssuerKey];
    let mut cases = Vec::new();
    for rule in rules {
        for reader in [Reader::Quiet, Reader::Busy, Reader::Stopped] {
            let eras = [Era::Legacy, Era::Modern].into_iter();
            cases.extend(
                eras.filter(|era| rule != EndedSession || *era == Era::Legacy).map(|era| (rule, reader, era)),
            );
        }
    }
    cases
}

/// A stream with the rule that applies to it.
struct Row {
    case: (Rule, Reader, Era),
    agent: String,
    key: String,
    bearer: String,
    session: Option<String>,
    socket: Option<StreamSocket>,
}

/// State that the rows share.
struct Fixture {
    database: Database,
    replica: Replica,
    issuer: Issuer,
    signers: [Signer; 2],
    clock: Arc<ShiftedClock>,
}

impl Fixture {
    /// With an interval of comments in seconds.
    async fn new(interval: u64) -> Self {
        let signers = [Signer::new("k1", "ES256"), Signer::new("k2", "ES256")];
        let issuer = Issuer::start(&[&signers[0], &signers[1]]).await;
        let (database, clock) = (database().await, Arc::new(ShiftedClock::default()));
        let replica = believing(&database, &issuer)
            .set("WAGGLE_SESSIONS__IDLE_SECONDS", 4 * interval)
            .set("WAGGLE_SESSIONS__KEEP_ALIVE_SECONDS", interval)
            .set("WAGGLE_TOKENS__REFRESH_SECONDS", 1)
            .clock(clock.clone())
            .start()
            .await;
        replica.tenant("acme").await;
        Self { database, replica, issuer, signers, clock }
    }

    async fn row(&self, number: usize, case: (Rule, Reader, Era)) -> Row {
        let agent = format!("r{number}");
        self.replica.agent("acme", &agent).await;
        self.touch(&agent, 0).await;
        let expires = time::OffsetDateTime::now_utc() + HALF;
        let expires = (case.0 == Expiry)
            .then(|| expires.format(&time::format_description::well_known::Rfc3339).unwrap());
        let path = format!("/agents/{agent}/keys");
        let made = self.replica.admin("POST", &path, Some(json!({"expiresAt": expires}))).await.json();
        let text = |member: &str| made[member].as_str().unwrap().to_owned();
        let bearer = match case.0 {
            TokenExpiry => self.token(0, &agent, HALF.whole_seconds()),
            WithdrawnIssuerKey => self.token(1, &agent, 2 * SHIFT.whole_seconds()),
            _ => text("key"),
        };
        let mut row = Row { case, agent, key: text("id"), bearer, session: None, socket: None };
        row.open(self).await;
        row
    }

    fn token(&self, signer: usize, agent: &str, lasts: i64) -> String {
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        let claims = claims_for(&self.issuer.url(), agent);
        self.signers[signer].token(&with(claims, json!({"exp": now + lasts})))
    }

    /// Changes every subscribed resource of an agent.
    async fn touch(&self, agent: &str, round: usize) {
        let path = format!("/agents/{agent}/templates?uriTemplate={}", encode("x:{a}"));
        let body = json!({"name": "n", "template": format!("round {round}")});
        let answer = self.replica.admin("PUT", &path, Some(body)).await;
        assert!(answer.status.is_success() || answer.status == 404, "{} {}", answer.status, answer.text());
    }

    async fn sent_events(&self) -> u64 {
        let bearer = format!("Bearer {}", self.replica.operator);
        let metrics = self.replica.http.send("GET", "/metrics", &[("authorization", &bearer)], "").await;
        let counts = metrics.text();
        let counts = counts.lines().filter(|line| line.starts_with("waggle_events_total{"));
        counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Writes until no more bytes reach the readers that do not read.
    async fn stall(&self, agents: &[&str]) {
        for round in 1.. {
            let before = self.sent_events().await;
            futures_util::future::join_all(agents.iter().map(|agent| self.touch(agent, round))).await;
            let mut last = before;
            loop {
                // Not for a condition: nothing is sent during this time.
                tokio::time::sleep(Duration::from_millis(500)).await;
                let now = self.sent_events().await;
                if now == last {
                    break;
                }
                last = now;
            }
            if last == before && round > 1 {
                return;
            }
        }
    }

    async fn open_sessions(&self, agent: &str) -> i64 {
        let open = "select count(*) from sessions s join agents a on a.uid = s.agent \
                    where s.ended_at is null and a.slug = ";
        self.database.number(&format!("{open} '{agent}'")).await
    }

    /// Waits until a session without a stream that was just opened has ended.
    async fn outlive_an_idle_session(&self) {
        let key = self.replica.key("control", &["mcp"]).await.1;
        Session::open(&self.replica, "control", &key, "2025-06-18").await;
        eventually("the idle session ends", async || self.open_sessions("control").await == 0).await;
    }

    async fn ended(&self, agent: &str) -> bool {
        let ends = "select count(*) from audit_log l join agents a on a.uid = l.agent \
                    where l.outcome like 'ended:%' and l.outcome <> 'ended:disconnected' and a.slug = ";
        self.database.number(&format!("{ends} '{agent}'")).await == 1
    }

    async fn apply(&self, row: &Row) {
        let admin = async |method: &str, path: &str, body: Option<Value>| {
            let answer = self.replica.admin(method, path, body).await;
            assert!(answer.status.is_success(), "{method} {path} {}", answer.text());
        };
        match row.case.0 {
            RotationGrace => {
                let grace = Some(json!({"graceSeconds": 2}));
                admin("POST", &format!("/keys/{}/rotate", row.key), grace).await;
            }
            Revocation => admin("DELETE", &format!("/keys/{}", row.key), None).await,
            DisabledAgent => {
                admin("PATCH", &format!("/agents/{}", row.agent), Some(json!({"enabled": false}))).await;
            }
            EndedSession => {
                let (bearer, session) = (format!("Bearer {}", row.bearer), row.session.as_deref().unwrap());
                let headers = [("authorization", bearer.as_str()), ("mcp-session-id", session)];
                let path = format!("/{}/mcp", row.agent);
                self.replica.http.send("DELETE", &path, &headers, "").await;
            }
            // All at once, by the clock and the issuer.
            Expiry | TokenExpiry | WithdrawnIssuerKey => {}
        }
    }
}

impl Row {
    fn is(&self, reader: Reader) -> bool {
        self.case.1 == reader
    }

    async fn open(&mut self, fixture: &Fixture) {
        let address = fixture.replica.running.address;
        let count = if self.is(Reader::Stopped) { MANY } else { 1 };
        let uris: Vec<_> = (0..count).map(|n| format!("x:{n}{}", "a".repeat(LONG))).collect();
        if self.case.2 == Era::Modern {
            self.socket = Some(StreamSocket::listen(address, &self.agent, &self.bearer, &uris).await);
            return;
        }
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"},
        });
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = fixture.replica.http.post_bearer(&self.agent, &self.bearer, &message).await;
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        let subscribe = format!(
            "insert into subscriptions (session, uri, since_revision) \
             select s.uid, 'x:' || n || repeat('a', {LONG}), s.since_revision from sessions s \
             join agents a on a.uid = s.agent, generate_series(0, {}) n where a.slug = '{}'",
            count - 1,
            self.agent
        );
        fixture.database.execute(&subscribe).await;
        self.socket = Some(StreamSocket::resume(address, &self.agent, &self.bearer, &session).await);
        self.session = Some(session);
    }
}

/// Touches agents at a shorter interval than that of comments.
async fn keep_busy(fixture: &Fixture, agents: &[String]) {
    for round in 1.. {
        futures_util::future::join_all(agents.iter().map(|agent| fixture.touch(agent, round))).await;
        // The interval of the changes.
        tokio::time::sleep(BUSY).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lifecycle_rules_hold_for_quiet_busy_and_stopped_readers() {
    let fixture = Fixture::new(INTERVAL).await;
    fixture.replica.agent("acme", "control").await;
    let rows = cases().into_iter().enumerate().map(|(number, case)| fixture.row(number, case));
    // Few at once: writes of one tenant wait for each other, and not forever.
    let mut rows: Vec<_> = futures_util::stream::iter(rows).buffered(4).collect().await;
    let agents_of = |rows: &[Row], reader| -> Vec<String> {
        rows.iter().filter(|row| row.is(reader)).map(|row| row.agent.clone()).collect()
    };
    let stopped = agents_of(&rows, Reader::Stopped);
    fixture.stall(&stopped.iter().map(String::as_str).collect::<Vec<_>>()).await;

    let busy = agents_of(&rows, Reader::Busy);
    let reading: Vec<(usize, JoinHandle<_>)> = rows
        .iter_mut()
        .enumerate()
        .filter(|(_, row)| !row.is(Reader::Stopped))
        .map(|(n, row)| (n, tokio::spawn(row.socket.take().unwrap().end(PATIENCE * 5))))
        .collect();
    let mut wrong = Vec::new();
    let checks = async {
        // A second session, since the streams were opened before the first.
        fixture.outlive_an_idle_session().await;
        fixture.outlive_an_idle_session().await;
        for row in rows.iter().filter(|row| row.case.2 == Era::Legacy) {
            if fixture.open_sessions(&row.agent).await != 1 {
                wrong.push(format!("{:?}: the session ended", row.case));
            }
        }
        fixture.issuer.publish(&[&fixture.signers[0]]);
        futures_util::future::join_all(rows.iter().map(|row| fixture.apply(row))).await;
        for row in rows.iter().filter(|row| !matches!(row.case.0, Expiry | TokenExpiry)) {
            wait_for_end(&fixture, row, &mut wrong).await;
        }
        fixture.clock.shift(SHIFT);
        for row in rows.iter().filter(|row| matches!(row.case.0, Expiry | TokenExpiry)) {
            wait_for_end(&fixture, row, &mut wrong).await;
        }
    };
    tokio::select! {
        () = checks => {}
        () = keep_busy(&fixture, &busy) => {}
    }
    for (n, reading) in reading {
        let read = if wrong.is_empty() { reading.await.unwrap() } else { Some(String::new()) };
        check_last_words(&rows[n], read, &mut wrong);
    }
    for row in &mut rows {
        if let Some(socket) = row.socket.take() {
            let read = socket.end(PATIENCE).await;
            check_last_words(row, read, &mut wrong);
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_reader_ends_at_a_shutdown_before_its_next_comment() {
    // Longer than the test.
    let fixture = Fixture::new(3_600).await;
    let mut row = fixture.row(0, (Revocation, Reader::Stopped, Era::Modern)).await;
    fixture.stall(&["r0"]).await;
    let Fixture { database, replica, .. } = fixture;
    replica.running.stop().await;
    let ended = database.number("select count(*) from audit_log where outcome = 'ended:shutdown'").await;
    assert_eq!(ended, 1);
    drop(row.socket.take());
}

async fn wait_for_end(fixture: &Fixture, row: &Row, wrong: &mut Vec<String>) {
    let ended = async {
        let mut looks = tokio::time::interval(Duration::from_millis(100));
        while !fixture.ended(&row.agent).await {
            looks.tick().await;
        }
    };
    // Only one stream that does not end is waited for.
    let patience = if wrong.is_empty() { PATIENCE } else { Duration::from_secs(2) };
    if tokio::time::timeout(patience, ended).await.is_err() {
        wrong.push(format!("{:?}: the stream did not end", row.case));
    }
}

fn check_last_words(row: &Row, read: Option<String>, wrong: &mut Vec<String>) {
    let expected = if row.case.2 == Era::Modern { r#""resultType":"complete""# } else { "retry: " };
    if !read.is_some_and(|read| read.is_empty() || read.contains(expected)) {
        wrong.push(format!("{:?}: not ended in good order", row.case));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_stream_announces_expiry_after_rotation() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let (id, key) = replica.key("a", &["mcp"]).await;
    replica.put("a", "x:a", "0").await;
    let session = Session::open(&replica, "a", &key, "2025-06-18").await;
    session.done(&replica, "logging/setLevel", json!({"level": "warning"})).await;
    session.subscribe(&replica, "x:a").await;
    let mut stream = session.stream(&replica, None).await;
    let grace = Some(json!({"graceSeconds": 3600}));
    assert_eq!(replica.admin("POST", &format!("/keys/{id}/rotate"), grace).await.status, 201);
    for n in 1.. {
        replica.put("a", "x:a", &n.to_string()).await;
        if stream.next_summary().await == "log key_expires" {
            return;
        }
        assert!(n < 100, "the stream does not announce the expiry");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_are_sent_while_the_feed_is_unproven() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let replica = Builder::new(&database)
        .set("WAGGLE_SESSIONS__KEEP_ALIVE_SECONDS", 1)
        .store(|store| (store.connect, store.listen) = (proxy.options.clone(), proxy.options.clone()))
        .start()
        .await;
    let key = replica.acme("a").await;
    let mut stream = listen(&replica, "a", &key, json!(1), json!({"promptsListChanged": true})).await;
    stream.next_summary().await;
    proxy.swallow(true);
    eventually("the feed is unproven", async || replica.http.get("/readyz").await.status != 200).await;
    let before = stream.comments();
    let begun = std::time::Instant::now();
    while stream.comments() < before + 3 {
        assert!(begun.elapsed() < PATIENCE, "{} comments", stream.comments() - before);
        assert_eq!(stream.drain(Duration::from_secs(1)).await, Vec::<String>::new());
    }
}
