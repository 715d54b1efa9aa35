//! Sessions with PostgreSQL: connected to an address that was checked, with a role that was checked.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls};

use super::database_url::{PostgresUrl, TlsMode};
use super::metered::{Allowance, Metered};
use super::tls::Tls;
use crate::egress::Egress;
use crate::error::FetchError;
use crate::kind::SourceContext;
use crate::pace::Pace;

/// How many bytes may be received outside of rows.
const OVERHEAD_BYTES: u64 = 1024 * 1024;

/// The settings of every session. `discard all` restores them. A server whose client has gone ends the statement.
const OPTIONS: &str = "-c statement_timeout=30000 -c idle_in_transaction_session_timeout=30000 \
    -c idle_session_timeout=60000 -c client_connection_check_interval=1000 -c client_min_messages=error \
    -c standard_conforming_strings=on -c datestyle=ISO -c timezone=UTC";

/// The name of the database, and whether the role may do what no role of a connection may: everything, receive the write-ahead
/// log, access files, run programs, or signal the backends of other roles.
const CHECK: &str = "select current_database()::text, \
    exists (select from pg_catalog.pg_roles r where pg_has_role(session_user, r.oid, 'member') \
        and (r.rolsuper or r.rolreplication or r.rolname like 'pg\\_signal\\_%' \
            or r.rolname in ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program'))) \
    or exists (select from pg_catalog.pg_proc p where has_function_privilege(p.oid, 'execute') \
        and p.proname in ('lo_import', 'lo_export', 'pg_read_file', 'pg_read_binary_file', 'pg_stat_file', \
            'pg_ls_dir', 'pg_file_write', 'pg_file_sync', 'pg_file_rename', 'pg_file_unlink'))";

/// Whom to connect to, and how.
pub(super) struct Server {
    pub(super) url: PostgresUrl,
    pub(super) password: Option<String>,
    pub(super) egress: Egress,
    pub(super) tls: Arc<rustls::ClientConfig>,
    pub(super) context: Arc<SourceContext>,
}

/// An open session. Dropped, it closes its connection, in any state.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) allowance: Arc<Allowance>,
    driver: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Session {
    /// Allows to receive so many bytes of rows from now on, at a pace.
    pub(super) fn allow(&self, bytes: u64, pace: Option<&Arc<Pace>>) {
        self.allowance.set(bytes.saturating_mul(2).saturating_add(OVERHEAD_BYTES), pace);
    }

    /// What an error of this session means.
    pub(super) fn failure(&self, error: &tokio_postgres::Error) -> FetchError {
        if self.allowance.is_used_up() { FetchError::TooLarge } else { failure(error) }
    }
}

/// What an error of the database means.
pub(super) fn failure(error: &tokio_postgres::Error) -> FetchError {
    let Some(state) = error.code() else { return FetchError::Unreachable };
    if *state == SqlState::QUERY_CANCELED {
        return FetchError::Timeout;
    }
    if *state == SqlState::INSUFFICIENT_PRIVILEGE {
        return FetchError::Denied;
    }
    if *state == SqlState::READ_ONLY_SQL_TRANSACTION {
        return FetchError::NotAllowed;
    }
    match state.code().get(..2) {
        Some("28") => FetchError::Denied,
        Some("08" | "57") => FetchError::Unreachable,
        // The statement or its values: syntax, names, data, functions that raise errors, what is too complex or not supported.
        Some("0A" | "21" | "22" | "2F" | "38" | "39" | "42" | "54" | "P0") => FetchError::Rejected,
        _ => FetchError::Status { retry_after: None },
    }
}

impl Server {
    /// Opens a session. `notify` receives an item for notifications, and keeps one until it is received.
    pub(super) async fn connect(&self, notify: Option<mpsc::Sender<()>>) -> Result<Session, FetchError> {
        let addresses = self.egress.resolve(&self.url.host, self.url.port).await?;
        let is_named = addresses.iter().all(|address| self.egress.names(address.ip()));
        let encrypted = match self.url.tls {
            TlsMode::Unspecified => !is_named,
            TlsMode::Verified => true,
            TlsMode::Disabled if is_named => false,
            TlsMode::Disabled => return Err(FetchError::NotAllowed),
        };
        let stream = TcpStream::connect(addresses.as_slice()).await.map_err(|_| FetchError::Unreachable)?;
        // Statements are small, and each is waited for.
        stream.set_nodelay(true).map_err(|_| FetchError::Unreachable)?;
        let is_own = self.is_own_server(&stream).await?;
        let session = self.authenticate(stream, encrypted, notify).await?;
        let row = session.client.query_one(CHECK, &[]).await.map_err(|error| session.failure(&error))?;
        let wrong = |_| FetchError::BadContent;
        let name: &str = row.try_get(0).map_err(wrong)?;
        let is_privileged: bool = row.try_get(1).map_err(wrong)?;
        let is_own_name = self.context.own_database.as_ref().is_some_and(|(_, _, own)| own == name);
        if is_privileged || (is_own && is_own_name) {
            return Err(FetchError::NotAllowed);
        }
        Ok(session)
    }

    async fn authenticate(
        &self,
        stream: TcpStream,
        encrypted: bool,
        notify: Option<mpsc::Sender<()>>,
    ) -> Result<Session, FetchError> {
        let mut config = tokio_postgres::Config::new();
        config.user(&self.url.user).dbname(&self.url.database).options(OPTIONS).application_name("waggle");
        if let Some(password) = &self.password {
            config.password(password);
        }
        let allowance = Arc::new(Allowance::default());
        allowance.set(OVERHEAD_BYTES, None);
        let stream = Metered::new(stream, Arc::clone(&allowance));
        let (client, driver) = if encrypted {
            let name = self.url.host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let name = ServerName::try_from(name).map_err(|_| FetchError::NotAllowed)?;
            let tls = Tls { config: Arc::clone(&self.tls), name };
            config.ssl_mode(SslMode::Require);
            let (client, connection) =
                config.connect_raw(stream, tls).await.map_err(|error| failure(&error))?;
            (client, tokio::spawn(drive(connection, notify)))
        } else {
            config.ssl_mode(SslMode::Disable);
            let (client, connection) =
                config.connect_raw(stream, NoTls).await.map_err(|error| failure(&error))?;
            (client, tokio::spawn(drive(connection, notify)))
        };
        Ok(Session { client, allowance, driver })
    }

    /// Whether a stream leads to the server of the process's own database.
    async fn is_own_server(&self, stream: &TcpStream) -> Result<bool, FetchError> {
        let Some((host, port, _)) = &self.context.own_database else { return Ok(false) };
        let ends = stream.peer_addr().and_then(|peer| Ok((peer, stream.local_addr()?)));
        let (peer, local) = ends.map_err(|_| FetchError::Unreachable)?;
        if peer.port() != *port {
            return Ok(false);
        }
        if host.starts_with('/') {
            return Ok(is_this_machine(peer, local));
        }
        let own = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => vec![address],
            // What cannot be compared is not allowed.
            Err(_) => self.context.resolver.resolve(host).await.map_err(|_| FetchError::NotAllowed)?,
        };
        let peer_address = peer.ip().to_canonical();
        let is_same = |own: &IpAddr| {
            own.to_canonical() == peer_address || (own.is_loopback() && is_this_machine(peer, local))
        };
        Ok(own.iter().any(is_same))
    }
}

/// Whether the peer is on this machine, which connects to any of its own addresses from that address.
fn is_this_machine(peer: SocketAddr, local: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback() || peer.ip() == local.ip()
}

/// Runs a connection until it ends.
async fn drive<S, T>(mut connection: Connection<S, T>, notify: Option<mpsc::Sender<()>>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let (AsyncMessage::Notification(_), Some(notify)) = (message, &notify) {
            // A full channel holds the item that this one would be.
            notify.try_send(()).ok();
        }
    }
}
