//! A server of HTTP that answers, or fails in one of several ways, by the first segment of the path. It has a thread of its
//! own, of the lowest priority: what it sends does not delay what the benchmark receives, as that of another machine.

use std::io::Write as _;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::setpriority_process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::error::Error;

/// How a source fails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It never answers.
    Hangs,
    /// It sends a byte a second.
    Trickles,
    /// It sends zeros that decompress to 64 times the limit.
    IsBomb,
    /// It sends 10 GB.
    SendsAll,
    /// It closes mid-way.
    Closes,
    /// It states a length below that of the body.
    Lies,
    /// It states that a body is UTF-8 that is not.
    IsNoText,
    /// It answers 429, and when to come back.
    Refuses,
}

/// All of them.
pub(super) const FAULTS: [Fault; 8] = [
    Fault::Hangs,
    Fault::Trickles,
    Fault::Lies,
    Fault::SendsAll,
    Fault::IsBomb,
    Fault::IsNoText,
    Fault::Refuses,
    Fault::Closes,
];

/// The decompressed size of the bomb.
const BOMB: usize = 256 << 20;
const TEN_GB: u64 = 10_000_000_000;
const PIECE: usize = 64 << 10;
/// The nice value of the thread.
const LOWEST: i32 = 19;

impl Fault {
    /// The path, and the id of the connection.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Hangs => "hang",
            Self::Trickles => "trickle",
            Self::IsBomb => "bomb",
            Self::SendsAll => "all",
            Self::Closes => "close",
            Self::Lies => "lie",
            Self::IsNoText => "binary",
            Self::Refuses => "refuse",
        }
    }

    /// What it does.
    pub(super) fn says(self) -> &'static str {
        match self {
            Self::Hangs => "hangs",
            Self::Trickles => "sends a byte a second",
            Self::IsBomb => "sends a gzip bomb",
            Self::SendsAll => "sends 10 GB",
            Self::Closes => "closes mid-way",
            Self::Lies => "states a length of 10 and sends 1 MB",
            Self::IsNoText => "sends invalid UTF-8",
            Self::Refuses => "answers 429 with Retry-After",
        }
    }
}

pub(super) struct Upstream {
    port: u16,
    requests: Arc<AtomicU64>,
    /// The thread ends once this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Upstream {
    /// Starts it; `/fast` has so many bytes.
    pub(super) fn start(bytes: usize) -> Result<Self, Error> {
        let doing = "start a server of HTTP";
        let listener = StdListener::bind("127.0.0.1:0").map_err(Error::io(doing))?;
        listener.set_nonblocking(true).map_err(Error::io(doing))?;
        let port = listener.local_addr().map_err(Error::io(doing))?.port();
        let bomb: Arc<[u8]> = bomb().map_err(Error::io("compress a bomb"))?.into();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::io(doing))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let requests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&requests);
        std::thread::spawn(move || {
            // On Linux of this thread alone. Everybody may lower a priority.
            setpriority_process(None, LOWEST).ok();
            runtime.block_on(async {
                tokio::select! {
                    ended = accept(listener, bytes, bomb, counted) => drop(ended),
                    stopped = stopped => drop(stopped),
                }
            });
        });
        Ok(Self { port, requests, _stop: stop })
    }

    /// How many requests it has received.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }
}

fn bomb() -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let piece = vec![0; PIECE];
    for _ in 0..BOMB / PIECE {
        encoder.write_all(&piece)?;
    }
    encoder.finish()
}

async fn accept(
    listener: StdListener,
    bytes: usize,
    bomb: Arc<[u8]>,
    requests: Arc<AtomicU64>,
) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve(stream, bytes, Arc::clone(&bomb), Arc::clone(&requests)));
    }
}

/// Answers one request, until the gateway ends the connection.
async fn serve(
    mut stream: TcpStream,
    bytes: usize,
    bomb: Arc<[u8]>,
    requests: Arc<AtomicU64>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    requests.fetch_add(1, Ordering::Relaxed);
    let path = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let first = path.split(|byte| *byte == b'/').nth(1).unwrap_or_default();
    let fault = FAULTS.into_iter().find(|fault| first == fault.path().as_bytes());
    let head = |length: u64, more: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: {length}\r\n{more}\r\n"
        )
    };
    match fault {
        None => {
            stream.write_all(head(bytes as u64, "").as_bytes()).await?;
            stream.write_all(&vec![b'x'; bytes]).await
        }
        Some(Fault::Hangs) => stream.read_u8().await.map(|_| ()),
        Some(Fault::Trickles) => {
            stream.write_all(head(1_000, "").as_bytes()).await?;
            loop {
                stream.write_all(b"x").await?;
                sleep(Duration::from_secs(1)).await;
            }
        }
        Some(Fault::IsBomb) => {
            stream.write_all(head(bomb.len() as u64, "content-encoding: gzip\r\n").as_bytes()).await?;
            stream.write_all(&bomb).await
        }
        Some(Fault::SendsAll) => {
            // Without a length, which alone would be refused.
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).await?;
            let piece = vec![b'x'; PIECE];
            for _ in 0..TEN_GB / PIECE as u64 {
                stream.write_all(&piece).await?;
            }
            Ok(())
        }
        Some(Fault::Lies) => {
            stream.write_all(head(10, "").as_bytes()).await?;
            stream.write_all(&vec![b'x'; 1 << 20]).await
        }
        Some(Fault::IsNoText) => {
            stream
                .write_all(
                    head(bytes as u64, "").replace("text/plain", "text/plain; charset=utf-8").as_bytes(),
                )
                .await?;
            stream.write_all(&vec![0xff; bytes]).await
        }
        Some(Fault::Refuses) => {
            let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(head.as_bytes()).await
        }
        Some(Fault::Closes) => {
            stream.write_all(head(1_000, "").as_bytes()).await?;
            stream.write_all(b"only this").await
        }
    }
}
