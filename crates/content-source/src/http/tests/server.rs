//! A server that answers as a test says, byte by byte, and records requests.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::egress::Resolve;
use crate::kind::SourceContext;

/// What the server does for an answer. After the last step the connection is closed.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// Sends until the client closes the connection.
    Repeat(Vec<u8>),
}

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) target: String,
    pub(super) headers: BTreeMap<String, String>,
}

#[derive(Default)]
struct Record {
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
    sent: AtomicUsize,
    open: AtomicUsize,
}

/// Stops when dropped.
pub(super) struct Server {
    pub(super) port: u16,
    record: Arc<Record>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Answers each request by steps, which may depend on the server's own port.
    pub(super) async fn start(answer: impl Fn(&Request, u16) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::start_with(None, answer).await
    }

    pub(super) async fn start_with(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&Request, u16) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (record, answer) = (Arc::new(Record::default()), Arc::new(answer));
        let task = tokio::spawn({
            let record = Arc::clone(&record);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (record, answer, tls) = (Arc::clone(&record), Arc::clone(&answer), tls.clone());
                    record.connections.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(async move {
                        record.open.fetch_add(1, Ordering::SeqCst);
                        let answer = |request: &Request| answer(request, port);
                        let served = match tls {
                            Some(tls) => match tls.accept(stream).await {
                                Ok(stream) => serve(stream, &record, answer).await,
                                Err(error) => Err(error),
                            },
                            None => serve(stream, &record, answer).await,
                        };
                        record.open.fetch_sub(1, Ordering::SeqCst);
                        drop(served);
                    });
                }
            }
        });
        Self { port, record, task }
    }

    /// Its URL by a name.
    pub(super) fn url(&self) -> String {
        format!("http://api.test:{}", self.port)
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.record.requests.lock().unwrap().clone()
    }

    pub(super) fn targets(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.target).collect()
    }

    /// How many connections were accepted.
    pub(super) fn connections(&self) -> usize {
        self.record.connections.load(Ordering::SeqCst)
    }

    /// How many connections are open.
    pub(super) fn open(&self) -> usize {
        self.record.open.load(Ordering::SeqCst)
    }

    /// How many bytes were written.
    pub(super) fn sent(&self) -> usize {
        self.record.sent.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    record: &Record,
    answer: impl Fn(&Request) -> Vec<Step>,
) -> io::Result<()> {
    let request = read_request(&mut stream).await?;
    record.requests.lock().unwrap().push(request.clone());
    for step in answer(&request) {
        match step {
            Step::Send(bytes) => write(&mut stream, record, &bytes).await?,
            Step::Pause(time) => {
                // A client that closes the connection meanwhile ends the pause.
                let read = tokio::time::timeout(time, stream.read_u8()).await;
                if read.is_ok() {
                    return Ok(());
                }
            }
            Step::Repeat(bytes) => loop {
                write(&mut stream, record, &bytes).await?;
            },
        }
    }
    stream.shutdown().await
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), record: &Record, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await?;
    record.sent.fetch_add(bytes.len(), Ordering::SeqCst);
    Ok(())
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let target = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Ok(Request { target, headers })
}

/// An answer with a body and its length.
pub(super) fn answer(status: &str, head: &str, body: &[u8]) -> Vec<Step> {
    let length = body.len();
    let mut bytes =
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{head}\r\n")
            .into_bytes();
    bytes.extend_from_slice(body);
    vec![Step::Send(bytes)]
}

/// Bytes in an encoding.
pub(super) async fn encoded(encoding: &str, bytes: &[u8]) -> Vec<u8> {
    use async_compression::Level;
    use async_compression::tokio::bufread::{BrotliEncoder, GzipEncoder, ZlibEncoder};
    let mut read = Vec::new();
    match encoding {
        "gzip" => GzipEncoder::new(bytes).read_to_end(&mut read).await.unwrap(),
        "br" => BrotliEncoder::with_quality(bytes, Level::Fastest).read_to_end(&mut read).await.unwrap(),
        "deflate" => ZlibEncoder::new(bytes).read_to_end(&mut read).await.unwrap(),
        _ => panic!("{encoding}"),
    };
    read
}

/// Resolves names below `test` to this machine, `rebinds.test` only after the first look-up, and knows no others.
#[derive(Default)]
struct TestResolver {
    lookups: AtomicUsize,
}

impl Resolve for TestResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let lookup = self.lookups.fetch_add(1, Ordering::SeqCst);
        let found: io::Result<Vec<IpAddr>> = match host {
            "rebinds.test" if lookup == 0 => Ok(vec![[127, 0, 0, 1].into()]),
            "rebinds.test" | "internal.test" => Ok(vec![[10, 0, 0, 1].into()]),
            "mixed.test" => Ok(vec![[127, 0, 0, 1].into(), [10, 0, 0, 1].into()]),
            name if name.rsplit('.').next() == Some("test") => Ok(vec![[127, 0, 0, 1].into()]),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        Box::pin(async move { found })
    }
}

pub(super) fn context() -> Arc<SourceContext> {
    Arc::new(SourceContext {
        file_roots: Vec::new(),
        denied_paths: Vec::new(),
        cache_dir: PathBuf::new(),
        cache_bytes: 0,
        own_database: None,
        resolver: Arc::new(TestResolver::default()),
    })
}
