//! A flood of requests from many addresses with unknown keys, and a caller with a valid key beside it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use waggle::model::key::{KeyKind, SecretKey};

/// Pipelined requests of a connection.
const AT_ONCE: usize = 8;
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

fn request(agent: &str, client: Ipv4Addr, key: &str) -> String {
    format!(
        "POST /{agent}/mcp HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: {client}\r\nX-Agent-API-Key: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{PING}",
        PING.len()
    )
}

/// A connection that reads the statuses of answers.
struct PipelinedClient {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl PipelinedClient {
    async fn begin(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), buffer: Vec::new() }
    }

    /// The status of the next answer, which is read completely.
    async fn status(&mut self) -> u16 {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.buffer[..end]).unwrap();
                let status = head[9..12].parse().unwrap();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                let whole = end + 4 + length.parse::<usize>().unwrap();
                while self.buffer.len() < whole {
                    self.receive().await;
                }
                self.buffer.drain(..whole);
                return status;
            }
            self.receive().await;
        }
    }

    async fn receive(&mut self) {
        let read = tokio::time::timeout(Duration::from_secs(60), self.stream.read_buf(&mut self.buffer));
        assert!(read.await.unwrap().unwrap() > 0, "the connection was closed");
    }
}

/// An unknown key: well-formed, so that it causes a look-up, or with a wrong check sum.
fn bad_key(well_formed: bool) -> String {
    let key = SecretKey::generate(KeyKind::Agent, &mut rand::rng());
    let (good, last) = key.reveal().split_at(52);
    let mistaken = if last == "x" { "y" } else { "x" };
    format!("{good}{}", if well_formed { last } else { mistaken })
}

/// Sends one request from each address, over `connections` connections of a trusted proxy, each of which sends
/// [`AT_ONCE`] requests every `pace`, or without a pause; returns the statuses.
pub(crate) async fn flood(
    address: SocketAddr,
    agent: &str,
    addresses: Range<u32>,
    connections: u32,
    pace: Option<Duration>,
) -> BTreeMap<u16, u64> {
    let mut under_way = JoinSet::new();
    for nth in 0..connections {
        let (agent, addresses) = (agent.to_owned(), addresses.clone());
        under_way.spawn(async move {
            let mut client = PipelinedClient::begin(address).await;
            let mut statuses = BTreeMap::new();
            let own = (addresses.start + nth..addresses.end).step_by(connections.try_into().unwrap());
            let (mut own, mut ticks) = (own.peekable(), pace.map(tokio::time::interval));
            while own.peek().is_some() {
                if let Some(ticks) = &mut ticks {
                    ticks.tick().await;
                }
                let clients: Vec<_> = own.by_ref().take(AT_ONCE).collect();
                let mut requests = String::new();
                for client in &clients {
                    let key = bad_key(client % 2 == 0);
                    requests += &request(&agent, Ipv4Addr::from(0x0b00_0000 + client), &key);
                }
                client.stream.write_all(requests.as_bytes()).await.unwrap();
                for _ in clients {
                    *statuses.entry(client.status().await).or_insert(0) += 1;
                }
            }
            statuses
        });
    }
    let mut all = BTreeMap::new();
    while let Some(statuses) = under_way.join_next().await {
        for (status, count) in statuses.unwrap() {
            *all.entry(status).or_insert(0) += count;
        }
    }
    all
}

/// The latencies of a caller with a valid key until `done`, sorted.
pub(crate) async fn valid_caller(
    address: SocketAddr,
    agent: &str,
    key: &str,
    done: impl Future<Output = ()>,
) -> Vec<Duration> {
    let (mut client, mut waited) = (PipelinedClient::begin(address).await, Vec::new());
    let request = request(agent, Ipv4Addr::new(192, 0, 2, 1), key);
    let mut done = std::pin::pin!(done);
    loop {
        let began = Instant::now();
        client.stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(client.status().await, 200, "the valid caller");
        waited.push(began.elapsed());
        if tokio::time::timeout(Duration::from_millis(5), &mut done).await.is_ok() {
            waited.sort_unstable();
            return waited;
        }
    }
}

/// A percentile of sorted latencies.
pub(crate) fn percentile(waited: &[Duration], percent: usize) -> Duration {
    waited[(waited.len() * percent / 100).min(waited.len() - 1)]
}

/// The resident memory of a process, in MiB.
pub(crate) fn resident(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}
