//! A TCP proxy in front of PostgreSQL that can drop all bytes without closing a connection, or refuse every connection.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::faults::Fault;
use super::statements::StatementLog;

pub(crate) struct Proxy {
    /// How to connect to the database through the proxy.
    pub(crate) options: PgConnectOptions,
    fault: watch::Sender<Fault>,
    /// The number of connections that were opened, and of the first of these that stay silent.
    opened: Arc<AtomicUsize>,
    silent: Arc<AtomicUsize>,
    connections: Arc<Mutex<JoinSet<()>>>,
    /// What was executed through the proxy.
    pub(crate) statements: StatementLog,
}

impl Proxy {
    /// A proxy of one database.
    pub(crate) async fn before(database: &PgConnectOptions) -> Self {
        Self::following(watch::channel(database.clone()).1).await
    }

    /// A proxy whose new connections lead to the database that was last sent on the channel.
    pub(crate) async fn following(target: watch::Receiver<PgConnectOptions>) -> Self {
        let database = target.borrow().clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (fault, faults) = watch::channel(Fault::None);
        let connections = Arc::new(Mutex::new(JoinSet::new()));
        let carried = Arc::clone(&connections);
        let statements = StatementLog::default();
        let log = statements.clone();
        let (opened, silent) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (number, silenced) = (Arc::clone(&opened), Arc::clone(&silent));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = Address::of(&target.borrow());
                let of = (number.fetch_add(1, Ordering::SeqCst), Arc::clone(&silenced));
                carried.lock().unwrap().spawn(carry(client, server, (faults.clone(), of), log.clone()));
            }
        });
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(port)
            .ssl_mode(sqlx::postgres::PgSslMode::Disable)
            .username(database.get_username())
            .database(database.get_database().unwrap());
        Self { options, fault, opened, silent, connections, statements }
    }

    /// Drops all bytes in both directions from now on without closing connections, or passes everything again on new
    /// connections.
    pub(crate) fn swallow(&self, yes: bool) {
        self.fail(if yes { Fault::Swallowed } else { Fault::None });
    }

    /// Drops all bytes of the connections that are open now, as a network that forgot them; new ones are carried.
    pub(crate) fn forget(&self) {
        self.silent.store(self.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Closes all open connections and returns once nothing more passes through them; new ones are carried.
    pub(crate) async fn cut(&self) {
        let mut open = std::mem::take(&mut *self.connections.lock().unwrap());
        open.shutdown().await;
    }

    /// From now on open and new connections fail in this way.
    pub(crate) fn fail(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

/// The faults of a connection: those of all, its number, and the number of the first one that is not silent.
type Faults = (watch::Receiver<Fault>, (usize, Arc<AtomicUsize>));

enum Address {
    Socket(PathBuf),
    Port(String, u16),
}

impl Address {
    fn of(options: &PgConnectOptions) -> Self {
        match options.get_socket() {
            Some(folder) => Self::Socket(folder.join(format!(".s.PGSQL.{}", options.get_port()))),
            None => Self::Port(options.get_host().to_owned(), options.get_port()),
        }
    }
}

async fn carry(client: TcpStream, server: Address, observed: Faults, log: StatementLog) {
    let mut faults = observed.0.clone();
    if *faults.borrow() == Fault::Refused {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let mut messages = log.connection();
    let read = |sent: &[u8]| messages.read(sent);
    let pumping = async {
        match server {
            Address::Socket(path) => {
                let Ok(stream) = UnixStream::connect(path).await else { return };
                let (from, to) = stream.into_split();
                tokio::join!(
                    pump(from_client, to, &observed, read),
                    pump(from, to_client, &observed, |_| ())
                );
            }
            Address::Port(host, port) => {
                let Ok(stream) = TcpStream::connect((host, port)).await else { return };
                let (from, to) = stream.into_split();
                tokio::join!(
                    pump(from_client, to, &observed, read),
                    pump(from, to_client, &observed, |_| ())
                );
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
    (faults, (number, silent)): &Faults,
    mut observe: impl FnMut(&[u8]),
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut swallowed = false;
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        observe(&buffer[..read]);
        // A connection that lost bytes stays silent: resuming in the middle would be another fault.
        swallowed |= *faults.borrow() == Fault::Swallowed || *number < silent.load(Ordering::SeqCst);
        if !swallowed && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
