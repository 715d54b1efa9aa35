//! Databases and connections of tests.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use embedded_postgres::{Embedded, EmbeddedOptions};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use super::super::*;
use crate::egress::SystemResolver;

pub(super) const BOUNDS: Bounds<'_> = Bounds { bytes: 64 * 1024, entries: 100, since: None, pace: None };

/// A statement, its parameters, a format, and the text that they give.
pub(super) type Case =
    (&'static str, &'static [(&'static str, &'static str)], Format, Result<&'static str, FetchError>);

/// What a process allows that has one root of files.
pub(super) fn context(root: &Path, own: Option<(String, u16, String)>) -> Arc<SourceContext> {
    Arc::new(SourceContext {
        file_roots: vec![root.to_owned()],
        denied_paths: vec![root.join("denied")],
        cache_dir: root.join("cache"),
        cache_bytes: 0,
        own_database: own,
        resolver: Arc::new(SystemResolver::default()),
    })
}

/// A server of PostgreSQL that listens on loopback, through a relay to its socket.
pub(super) struct Cluster {
    pub(super) folder: TempDir,
    pub(super) address: SocketAddr,
    pub(super) client: tokio_postgres::Client,
    embedded: Embedded,
    relay: tokio::task::JoinHandle<()>,
    /// The authority of the relay's certificate, if it encrypts.
    pub(super) ca: Option<String>,
}

impl Cluster {
    pub(super) async fn start(setup: &str) -> Self {
        Self::start_with(setup, None).await
    }

    /// Starts a server whose relay encrypts, with a certificate for a name.
    pub(super) async fn start_encrypted(setup: &str, name: &str) -> Self {
        Self::start_with(setup, Some(name)).await
    }

    async fn start_with(setup: &str, name: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let options = EmbeddedOptions {
            path: std::env::var_os("PATH"),
            durable: false,
            ..EmbeddedOptions::new("test", folder.path().join("data"))
        };
        let embedded = Embedded::start(options).await.unwrap();
        let options = embedded.connect_options();
        let socket = options.get_socket().unwrap().join(format!(".s.PGSQL.{}", options.get_port()));
        let stream = UnixStream::connect(&socket).await.unwrap();
        let mut config = tokio_postgres::Config::new();
        config.user("test").dbname("test");
        let (client, connection) = config.connect_raw(stream, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(setup).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (acceptor, ca) = name.map(certify).unzip();
        let relay = tokio::spawn(relay(listener, socket, acceptor));
        Self { folder, address, client, embedded, relay, ca }
    }

    pub(super) fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@{}/{database}", self.address)
    }

    /// A connection of the role `reader`, which may use any statement, with more settings.
    pub(super) fn connect(&self, more: &Value) -> Sql {
        let mut settings = json!({
            "url": self.url("reader", "test"),
            "allowNetworks": ["127.0.0.0/8"],
            "allowStatements": true,
        });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Sql::new(&settings, &Map::new(), &context(self.folder.path(), None)).unwrap()
    }

    pub(super) async fn stop(self) {
        self.relay.abort();
        drop(self.client);
        self.embedded.stop().await;
    }
}

fn certify(name: &str) -> (TlsAcceptor, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), cert.pem())
}

/// Relays connections to a socket. With an acceptor it encrypts, as a server of PostgreSQL does that has a certificate.
async fn relay(listener: TcpListener, socket: PathBuf, acceptor: Option<TlsAcceptor>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (socket, acceptor) = (socket.clone(), acceptor.clone());
        tokio::spawn(async move {
            let Some(acceptor) = acceptor else { return forward(stream, &socket).await };
            let mut request = [0; 8];
            stream.read_exact(&mut request).await.unwrap();
            assert_eq!(request, [0, 0, 0, 8, 4, 210, 22, 47], "a request for encryption");
            stream.write_all(b"S").await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                forward(stream, &socket).await;
            }
        });
    }
}

async fn forward(mut stream: impl AsyncRead + AsyncWrite + Unpin, socket: &Path) {
    let mut server = UnixStream::connect(socket).await.unwrap();
    copy_bidirectional(&mut stream, &mut server).await.ok();
}

pub(super) fn location(statement: &str, parameters: &[(&str, &str)], format: Format) -> Location {
    let parameters =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Location::Statement { statement: statement.to_owned(), parameters, format }
}

/// The text that a statement gives, or why it gives none.
pub(super) async fn text(
    source: &Sql,
    statement: &str,
    parameters: &[(&str, &str)],
    format: Format,
) -> Result<String, FetchError> {
    let location = location(statement, parameters, format);
    match source.fetch(&location, None, BOUNDS).await? {
        Fetched::Contents { mut contents, validator: None } if contents.len() == 1 => {
            Ok(String::from_utf8(contents.remove(0).bytes.to_vec()).unwrap())
        }
        other => panic!("{other:?}"),
    }
}
