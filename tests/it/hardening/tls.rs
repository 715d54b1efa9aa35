//! TLS, and the renewal of certificates.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use waggle::app;
use waggle::config::{self, Environment, Flags, Purpose};
use waggle::http::operator_keys::OperatorKeys;
use waggle::model::key::{KeyKind, SecretKey};

use crate::support::app::Replica;
use crate::support::cluster::{Database, database, store_options};
use crate::support::errors::ErrorLog;
use crate::support::frames::{FrameClient, get};
use crate::support::http::Client;
use crate::support::wait::eventually;

/// The files of a certificate for `localhost`.
pub(crate) struct Files {
    pub(super) folder: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> (Self, CertificateDer<'static>) {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        let certificate = files.renew();
        (files, certificate)
    }

    pub(super) fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// Replaces the certificate and the key.
    fn renew(&self) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let made = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        fs::write(self.key(), key.serialize_pem()).unwrap();
        fs::write(self.certificate(), made.pem()).unwrap();
        made.der().clone()
    }

    fn settings(&self) -> [(&'static str, String); 2] {
        [
            ("WAGGLE_SERVER__TLS_CERTIFICATE", self.certificate().display().to_string()),
            ("WAGGLE_SERVER__TLS_KEY", self.key().display().to_string()),
        ]
    }
}

/// A gateway with TLS. Readiness is checked by a client with TLS, since that of the tests has none.
pub(crate) async fn start(database: &Database, files: &Files, more: &[(&str, &str)]) -> Replica {
    let operator = "wag_00000000000000000000000000000000000000000003NxIRP".to_owned();
    let own = [("WAGGLE_SERVER__LISTEN".to_owned(), "127.0.0.1:0".to_owned())];
    let spill = tempfile::tempdir().unwrap();
    let spill_dir = [("WAGGLE_AUDIT__SPILL_DIR".to_owned(), spill.path().display().to_string())];
    let tls = files.settings().map(|(name, value)| (name.to_owned(), value));
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let environment: Environment = own.into_iter().chain(spill_dir).chain(tls).chain(more).collect();
    let settings = config::load(&environment, &Flags::default(), Purpose::Assist).ok().unwrap().settings;
    let keys = OperatorKeys::new([&SecretKey::parse(&operator).unwrap()]);
    let sources = waggle::model::sources::Sources::system();
    let http = Client::new("127.0.0.1:1".parse().unwrap());
    let running =
        app::start(&settings, store_options(database.options.clone()), keys, sources).await.unwrap();
    Replica { running, operator, http, _spill: spill }
}

/// Connects as a client that trusts this certificate only and offers these protocols.
pub(crate) async fn connect(
    address: std::net::SocketAddr,
    trusted: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Sends a liveness check on an open connection.
async fn is_alive(stream: &mut TlsStream<TcpStream>) -> bool {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..read]).starts_with("HTTP/1.1 200 OK")
}

#[tokio::test]
async fn tls_listener_serves_both_protocols_and_refuses_plaintext() {
    let database = database().await;
    let (files, certificate) = Files::new();
    let replica = start(&database, &files, &[("WAGGLE_ADMIN__LISTEN", "127.0.0.1:0")]).await;
    for address in [replica.running.address, replica.running.admin_address] {
        let mut first = connect(address, &certificate, &[b"http/1.1"]).await.unwrap();
        assert_eq!(first.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert!(is_alive(&mut first).await);
        let second = connect(address, &certificate, &[b"h2", b"http/1.1"]).await.unwrap();
        assert_eq!(second.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let mut second = FrameClient::begin(second).await;
        second.send(&get(1, 0)).await.unwrap();
        assert_eq!(second.status().await, Some(200));
        let plain = Client::new(address).try_send("GET", "/healthz", &[], "").await;
        assert!(plain.is_err(), "{plain:?}");
    }
}

#[tokio::test]
async fn renewed_certificate_applies_to_new_connections() {
    let database = database().await;
    let (files, first) = Files::new();
    let replica = start(&database, &files, &[]).await;
    let address = replica.running.address;
    let mut open = connect(address, &first, &[]).await.unwrap();
    assert!(is_alive(&mut open).await);
    let second = files.renew();
    let is_used = async || connect(address, &second, &[]).await.is_ok();
    eventually("the new certificate is used", is_used).await;
    assert!(connect(address, &first, &[]).await.is_err(), "the previous certificate is no longer used");
    assert!(is_alive(&mut open).await);
}

#[tokio::test]
async fn broken_certificate_is_ignored_until_a_valid_one_appears() {
    let database = database().await;
    let (files, first) = Files::new();
    let replica = start(&database, &files, &[]).await;
    let address = replica.running.address;
    let log = ErrorLog::start();
    let is_refused = async || eventually("the files are refused", async || !log.take().is_empty()).await;
    for broken in ["", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"] {
        fs::write(files.certificate(), broken).unwrap();
        is_refused().await;
        assert!(is_alive(&mut connect(address, &first, &[]).await.unwrap()).await, "{broken:?}");
    }
    let key = fs::read(files.key()).unwrap();
    let second = files.renew();
    let renewed = fs::read(files.key()).unwrap();
    fs::write(files.key(), key).unwrap();
    is_refused().await;
    assert!(connect(address, &first, &[]).await.is_ok(), "a certificate without its own key");
    fs::remove_file(files.key()).unwrap();
    is_refused().await;
    assert!(connect(address, &first, &[]).await.is_ok(), "no key at all");
    fs::write(files.key(), renewed).unwrap();
    let is_used = async || connect(address, &second, &[]).await.is_ok();
    eventually("the renewed certificate is used", is_used).await;
}

#[tokio::test]
async fn missing_tls_handshake_times_out() {
    let database = database().await;
    let (files, certificate) = Files::new();
    let replica = start(&database, &files, &[("WAGGLE_SERVER__HEAD_SECONDS", "1")]).await;
    let mut silent = TcpStream::connect(replica.running.address).await.unwrap();
    let (received, closed) = super::read_to_close(&mut silent, Duration::from_secs(5)).await;
    assert_eq!((received, closed), (String::new(), true));
    assert!(connect(replica.running.address, &certificate, &[]).await.is_ok());
}

#[tokio::test]
async fn start_with_an_invalid_tls_key_is_refused() {
    let database = database().await;
    let (files, _) = Files::new();
    fs::write(files.key(), "no key").unwrap();
    let settings: Environment =
        files.settings().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let settings = config::load(&settings, &Flags::default(), Purpose::Assist).ok().unwrap().settings;
    let keys = OperatorKeys::new([&SecretKey::generate(KeyKind::Operator, &mut rand::rng())]);
    let sources = waggle::model::sources::Sources::system();
    let refused =
        app::start(&settings, store_options(database.options.clone()), keys, sources).await.err().unwrap();
    let expected = format!("TLS cannot be configured: {} holds no private key in PEM", files.key().display());
    assert!(refused.to_string().starts_with(&expected), "{refused}");
    assert_eq!(json!(refused.to_string()).as_str().map(|error| error.contains("no key\"")), Some(false));
}
