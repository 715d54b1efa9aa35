//! A TCP proxy before PostgreSQL that can swallow everything without closing anything, or refuse every connection.

use std::path::PathBuf;

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

use crate::interference::Fault;

pub(crate) struct Proxy {
    /// The database, by way of the proxy.
    pub(crate) options: PgConnectOptions,
    fault: watch::Sender<Fault>,
    behind: watch::Sender<Behind>,
}

impl Proxy {
    pub(crate) async fn before(database: &PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (fault, faults) = watch::channel(Fault::None);
        let (behind, behinds) = watch::channel(Behind::of(database));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let behind = behinds.borrow().clone();
                tokio::spawn(carry(client, behind, faults.clone()));
            }
        });
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(port)
            .ssl_mode(sqlx::postgres::PgSslMode::Disable)
            .username(database.get_username())
            .database(database.get_database().unwrap());
        Self { options, fault, behind }
    }

    /// From now on nothing passes, in either direction, and nothing is closed; or everything passes again, on new
    /// connections.
    pub(crate) fn swallow(&self, yes: bool) {
        self.fail(if yes { Fault::Swallowed } else { Fault::None });
    }

    /// From now on connections fail like this, those that are open and new ones.
    pub(crate) fn fail(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// New connections lead to another server from now on.
    pub(crate) fn lead_to(&self, database: &PgConnectOptions) {
        self.behind.send_replace(Behind::of(database));
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

async fn carry(client: TcpStream, behind: Behind, mut faults: watch::Receiver<Fault>) {
    if *faults.borrow() == Fault::Refused {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let observed = faults.clone();
    let pumping = async {
        match behind {
            Behind::Socket(path) => {
                let Ok(server) = UnixStream::connect(path).await else { return };
                let (from, to) = server.into_split();
                tokio::join!(pump(from_client, to, &observed), pump(from, to_client, &observed));
            }
            Behind::Port(host, port) => {
                let Ok(server) = TcpStream::connect((host, port)).await else { return };
                let (from, to) = server.into_split();
                tokio::join!(pump(from_client, to, &observed), pump(from, to_client, &observed));
            }
        }
    };
    tokio::select! {
        () = pumping => {}
        _ = faults.wait_for(|fault| *fault == Fault::Refused) => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    faults: &watch::Receiver<Fault>,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut swallowed = false;
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        // A connection that lost bytes stays silent for good: resuming in the middle would be another fault.
        swallowed |= *faults.borrow() == Fault::Swallowed;
        if !swallowed && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
