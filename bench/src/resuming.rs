//! Streams of both eras that resume after a break, as clients do, beside a writer; and what each of them missed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::cases::{self, Call, Era};
use crate::error::{Error, excerpt};
use crate::http::{self, Connection};
use crate::population::Group;
use crate::sse::{EventReader, Said};

/// The resources that are changed in turn. Each stream is subscribed to all.
pub(crate) const RESOURCES: usize = 40;
/// The time between two changes. A change of a resource must have been received before its next one.
const EVERY: Duration = Duration::from_millis(500);
/// The time for an answer, and after a failed opening.
const ANSWER: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(50);

/// Where the streams are opened.
pub(crate) struct Target {
    pub(crate) port: u16,
    pub(crate) group: Group,
    /// The operator's `Authorization` header.
    pub(crate) authorization: String,
}

/// A change: the resource, its version, and when it was sent.
struct Change {
    resource: usize,
    version: u64,
    at: Instant,
}

/// What a stream received or read: the resource, its version where it was read, and when.
struct Seen {
    resource: usize,
    version: Option<u64>,
    at: Instant,
}

/// From the end of a stream until the next one is open, and in the modern era everything read again.
#[derive(Clone, Copy)]
pub(crate) struct Break {
    /// When the stream ended.
    pub(crate) ended: Instant,
    /// Openings that failed.
    pub(crate) failed: u32,
    /// When the next stream was open, since then.
    pub(crate) opened: Duration,
    /// When everything was read again, since then.
    pub(crate) over: Duration,
}

/// One stream over its breaks.
struct Listener {
    era: Era,
    seen: Mutex<Vec<Seen>>,
    breaks: Mutex<Vec<Break>>,
    failed: AtomicU64,
}

/// All streams of a run, and the changes.
pub(crate) struct Resuming {
    target: Arc<Target>,
    listeners: Vec<Arc<Listener>>,
    tasks: JoinSet<()>,
    changes: Vec<Change>,
    /// Changes that were not answered with success.
    refused: u64,
}

/// The results of one era.
pub(crate) struct Outcome {
    pub(crate) era: Era,
    pub(crate) streams: usize,
    /// Changes times streams.
    pub(crate) events: usize,
    pub(crate) lost: usize,
    pub(crate) breaks: usize,
    pub(crate) median: Duration,
    pub(crate) longest: Option<Break>,
    pub(crate) failed: u64,
}

impl Outcome {
    /// The length of the longest break.
    pub(crate) fn longest(&self) -> Duration {
        self.longest.map_or(Duration::ZERO, |longest| longest.over)
    }
}

impl Resuming {
    /// Opens as many streams, half of them in each era.
    pub(crate) async fn open(target: Target, streams: usize) -> Result<Self, Error> {
        let target = Arc::new(target);
        let mut resuming = Self {
            target: Arc::clone(&target),
            listeners: Vec::new(),
            tasks: JoinSet::new(),
            changes: Vec::new(),
            refused: 0,
        };
        for nth in 0..streams {
            let era = if nth % 2 == 0 { Era::Legacy } else { Era::Modern };
            let (seen, breaks) = (Mutex::default(), Mutex::default());
            let listener = Arc::new(Listener { era, seen, breaks, failed: AtomicU64::new(0) });
            let session = match era {
                Era::Legacy => Some(target.session().await?),
                Era::Modern => None,
            };
            let mut reader = EventReader::default();
            let stream = target.open(session.as_deref(), &mut reader, &listener).await?;
            resuming.listeners.push(Arc::clone(&listener));
            let target = Arc::clone(&target);
            resuming.tasks.spawn(async move { target.follow(session, stream, reader, &listener).await });
        }
        Ok(resuming)
    }

    /// Changes one resource after another, for as long as it is polled.
    pub(crate) async fn write(&mut self) -> Result<(), Error> {
        loop {
            sleep(EVERY).await;
            let number = self.changes.len();
            let (resource, version) = (number % RESOURCES, number as u64 + 1);
            self.changes.push(Change { resource, version, at: Instant::now() });
            let Target { group, port, authorization } = &*self.target;
            let path = format!("/admin/v1/agents/{}/resources?uri=x%3A{}", group.agent(0), resource + 1);
            let body = json!({ "name": "changed", "contents": [{ "text": version.to_string() }] });
            let request =
                http::request("PUT", &path, *port, &[("Authorization", authorization)], Some(&body));
            if exchange(*port, &request).await.is_err() {
                self.refused += 1;
            }
        }
    }

    /// Waits for the last events, ends the streams, and counts what they missed.
    pub(crate) async fn outcomes(mut self) -> (Vec<Outcome>, u64) {
        sleep(2 * ANSWER).await;
        self.tasks.shutdown().await;
        let ended = Instant::now();
        let outcome = |era| {
            let listeners: Vec<_> = self.listeners.iter().filter(|listener| listener.era == era).collect();
            let mut breaks: Vec<Break> = listeners.iter().flat_map(|one| lock(&one.breaks).clone()).collect();
            breaks.sort_by_key(|one| one.over);
            Outcome {
                era,
                streams: listeners.len(),
                events: listeners.len() * self.changes.len(),
                lost: listeners.iter().map(|one| lost(&self.changes, &lock(&one.seen), ended)).sum(),
                breaks: breaks.len(),
                median: breaks.get(breaks.len() / 2).map_or(Duration::ZERO, |one| one.over),
                longest: breaks.last().copied(),
                failed: listeners.iter().map(|one| one.failed.load(Ordering::Relaxed)).sum(),
            }
        };
        ([Era::Legacy, Era::Modern].map(outcome).into(), self.refused)
    }
}

/// The changes of which a stream received no event, and read nothing as new, before the next change of the resource.
fn lost(changes: &[Change], seen: &[Seen], ended: Instant) -> usize {
    let missed = |(nth, change): &(usize, &Change)| {
        let next = changes.get(nth + RESOURCES).map_or(ended, |next| next.at);
        !seen.iter().any(|seen| {
            seen.resource == change.resource
                && (change.at..=next).contains(&seen.at)
                && seen.version.is_none_or(|version| version >= change.version)
        })
    };
    changes.iter().enumerate().filter(missed).count()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Target {
    /// Opens a session that is subscribed to every resource.
    async fn session(&self) -> Result<String, Error> {
        let mut connection = Connection::open(self.port).await?;
        let client = json!({ "name": "bench", "version": "1" });
        let version = Era::Legacy.version();
        let initialize = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
        let request = self.call("initialize", initialize, Era::Legacy, None);
        let answer = connection.exchange(&request).await?;
        let missing = Error::NoStream { server: "waggle", status: answer.status };
        let session = answer.header("mcp-session-id").map(str::to_owned).ok_or(missing)?;
        for nth in 1..=RESOURCES {
            let subscribe = json!({ "uri": format!("x:{nth}") });
            let request = self.call("resources/subscribe", subscribe, Era::Legacy, Some(&session));
            if !connection.is_open() {
                connection = Connection::open(self.port).await?;
            }
            answered(&mut connection, &request).await?;
        }
        Ok(session)
    }

    fn call(&self, method: &str, params: Value, era: Era, session: Option<&str>) -> Vec<u8> {
        let agent = self.group.agent(0);
        let call = Call { agent: &agent, method, mcp_name: None };
        call.request_in(session, params, era, self.port, &self.group.key(0))
    }

    /// Opens the stream of a session, where the last one ended, or one without a session.
    async fn open(
        &self,
        session: Option<&str>,
        reader: &mut EventReader,
        listener: &Listener,
    ) -> Result<TcpStream, Error> {
        let request = if let Some(session) = session {
            let key = self.group.key(0);
            let mut headers = vec![
                ("Accept", "text/event-stream"),
                ("MCP-Protocol-Version", Era::Legacy.version()),
                ("X-Agent-API-Key", &key),
                ("Mcp-Session-Id", session),
            ];
            headers.extend(reader.last_id.as_deref().map(|id| ("Last-Event-ID", id)));
            http::request("GET", &cases::path(&self.group.agent(0)), self.port, &headers, None)
        } else {
            let uris: Vec<String> = (1..=RESOURCES).map(|nth| format!("x:{nth}")).collect();
            let params = json!({ "notifications": { "resourceSubscriptions": uris } });
            self.call("subscriptions/listen", params, Era::Modern, None)
        };
        let opening = async { Connection::open(self.port).await?.begin_stream(&request).await };
        let late = Error::TimedOut { server: "waggle", seconds: ANSWER.as_secs() };
        let (status, stream, received) = timeout(ANSWER, opening).await.unwrap_or(Err(late))?;
        if status != 200 {
            return Err(Error::NoStream { server: "waggle", status });
        }
        reader.begin_again();
        listener.note(reader.read(&received));
        Ok(stream)
    }

    /// Reads a stream, and opens the next one when it ends.
    async fn follow(
        &self,
        session: Option<String>,
        mut stream: TcpStream,
        mut reader: EventReader,
        listener: &Listener,
    ) {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            while !reader.ended
                && let Ok(length @ 1..) = stream.read(&mut buffer).await
            {
                listener.note(reader.read(&buffer[..length]));
            }
            let (ended, mut failed) = (Instant::now(), 0);
            sleep(Duration::from_millis(reader.retry.unwrap_or_default())).await;
            let opened;
            (stream, opened) = loop {
                match self.resume(session.as_deref(), &mut reader, listener).await {
                    Ok(resumed) => break resumed,
                    Err(_) => failed += 1,
                }
                sleep(AGAIN).await;
            };
            listener.failed.fetch_add(failed.into(), Ordering::Relaxed);
            let (opened, over) = (opened.duration_since(ended), ended.elapsed());
            lock(&listener.breaks).push(Break { ended, failed, opened, over });
        }
    }

    /// Opens the next stream; returns when it was open. Without a session, what changed meanwhile is read.
    async fn resume(
        &self,
        session: Option<&str>,
        reader: &mut EventReader,
        listener: &Listener,
    ) -> Result<(TcpStream, Instant), Error> {
        let stream = self.open(session, reader, listener).await?;
        let opened = Instant::now();
        if session.is_none() {
            let mut connection = Connection::open(self.port).await?;
            for resource in 0..RESOURCES {
                if !connection.is_open() {
                    connection = Connection::open(self.port).await?;
                }
                let uri = format!("x:{}", resource + 1);
                let request = cases::read(&self.group.agent(0), &uri, self.port, &self.group.key(0));
                let body: Value =
                    serde_json::from_slice(answered(&mut connection, &request).await?).unwrap_or_default();
                let text = body["result"]["contents"][0]["text"].as_str();
                // Until its first change a resource has no version.
                let version = Some(text.and_then(|text| text.parse().ok()).unwrap_or(0));
                lock(&listener.seen).push(Seen { resource, version, at: Instant::now() });
            }
        }
        Ok((stream, opened))
    }
}

impl Listener {
    fn note(&self, said: Vec<Said>) {
        let at = Instant::now();
        let mut seen = lock(&self.seen);
        for said in said {
            if let Said::Updated(uri) = said
                && let Some(number) = uri.strip_prefix("x:").and_then(|number| number.parse::<usize>().ok())
            {
                seen.push(Seen { resource: number.wrapping_sub(1), version: None, at });
            }
        }
    }
}

async fn exchange(port: u16, request: &[u8]) -> Result<(), Error> {
    answered(&mut Connection::open(port).await?, request).await.map(|_| ())
}

/// The body of an answer with success.
async fn answered<'a>(connection: &'a mut Connection, request: &[u8]) -> Result<&'a [u8], Error> {
    let late = Error::TimedOut { server: "waggle", seconds: ANSWER.as_secs() };
    let answer = timeout(ANSWER, connection.exchange(request)).await.unwrap_or(Err(late))?;
    let is_error = answer.body.starts_with(br#"{"jsonrpc":"2.0","id":1,"error""#);
    if !(200..300).contains(&answer.status) || is_error {
        let (status, body) = (answer.status, excerpt(answer.body));
        return Err(Error::Status { server: "waggle", case: "a request beside the streams", status, body });
    }
    Ok(answer.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_counts_until_the_next_change_of_its_resource() {
        let start = Instant::now();
        let second = |number: u64| start + Duration::from_secs(number);
        let change = |number: usize| {
            let version = number as u64 + 1;
            Change { resource: number % RESOURCES, version, at: second(number as u64) }
        };
        let changes: Vec<Change> = (0..=RESOURCES).map(change).collect();
        let event = |resource, at| Seen { resource, version: None, at: second(at) };
        let missed = |seen: &[Seen]| lost(&changes, seen, second(100));
        assert_eq!(missed(&[]), RESOURCES + 1);
        assert_eq!(missed(&[event(0, 1)]), RESOURCES, "the first change");
        assert_eq!(missed(&[event(0, 41)]), RESOURCES, "the last one, of the same resource");
        assert_eq!(missed(&[event(1, 0)]), RESOURCES + 1, "before the change");
        let read = |version| Seen { resource: 3, version: Some(version), at: second(9) };
        assert_eq!(
            (missed(&[read(3)]), missed(&[read(4)])),
            (RESOURCES + 1, RESOURCES),
            "read as old, as new"
        );
    }
}
