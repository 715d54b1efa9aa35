//! A TCP proxy before PostgreSQL that can swallow everything without closing anything.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

pub(crate) struct Proxy {
    /// The database, by way of the proxy.
    pub(crate) options: PgConnectOptions,
    swallows: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) async fn before(database: &PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let swallows = Arc::new(AtomicBool::new(false));
        let behind = Behind::of(database);
        let shared = Arc::clone(&swallows);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, behind.clone(), Arc::clone(&shared)));
            }
        });
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(port)
            .ssl_mode(sqlx::postgres::PgSslMode::Disable)
            .username(database.get_username())
            .database(database.get_database().unwrap());
        Self { options, swallows }
    }

    /// From now on nothing passes, in either direction, and nothing is closed; or everything passes again, on new
    /// connections.
    pub(crate) fn swallow(&self, yes: bool) {
        self.swallows.store(yes, Ordering::SeqCst);
    }
}

#[derive(Clone)]
enum Behind {
    Socket(PathBuf),
    Port(String, u16),
}

impl Behind {
    fn of(options: &PgConnectOptions) -> Self {
        match options.get_socket() {
            Some(folder) => Self::Socket(folder.join(format!(".s.PGSQL.{}", options.get_port()))),
            None => Self::Port(options.get_host().to_owned(), options.get_port()),
        }
    }
}

async fn carry(client: TcpStream, behind: Behind, swallows: Arc<AtomicBool>) {
    let (from_client, to_client) = client.into_split();
    match behind {
        Behind::Socket(path) => {
            let (from, to) = UnixStream::connect(path).await.unwrap().into_split();
            tokio::join!(pump(from_client, to, &swallows), pump(from, to_client, &swallows));
        }
        Behind::Port(host, port) => {
            let (from, to) = TcpStream::connect((host, port)).await.unwrap().into_split();
            tokio::join!(pump(from_client, to, &swallows), pump(from, to_client, &swallows));
        }
    }
}

async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, swallows: &AtomicBool) {
    let mut buffer = vec![0; 16 * 1024];
    let mut swallowed = false;
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        // A connection that lost bytes stays silent for good: resuming in the middle would be another fault.
        swallowed |= swallows.load(Ordering::SeqCst);
        if !swallowed && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
