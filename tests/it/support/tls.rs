//! Gateways with TLS, and their certificates.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use waggle::app;
use waggle::config::{self, Environment, Flags, Purpose};
use waggle::http::operator_keys::OperatorKeys;
use waggle::model::key::SecretKey;

use crate::support::app::Replica;
use crate::support::cluster::{Database, store_options};
use crate::support::http::Client;

/// The files of a certificate for `localhost`.
pub(crate) struct Files {
    pub(crate) folder: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> (Self, CertificateDer<'static>) {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        let certificate = files.renew();
        (files, certificate)
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// Replaces the certificate and the key.
    pub(crate) fn renew(&self) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let made = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        fs::write(self.key(), key.serialize_pem()).unwrap();
        fs::write(self.certificate(), made.pem()).unwrap();
        made.der().clone()
    }

    pub(crate) fn settings(&self) -> [(&'static str, String); 2] {
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
    let system = waggle::model::system::System::real();
    let http = Client::new("127.0.0.1:1".parse().unwrap());
    let running = app::start(&settings, store_options(database.options.clone()), keys, system).await.unwrap();
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
