//! TLS, and the renewal of certificates.

use std::fs;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use waggle::app;
use waggle::config::{self, Environment, Flags, Purpose};
use waggle::http::operator_keys::OperatorKeys;
use waggle::model::key::{KeyKind, SecretKey};

use crate::support::cluster::{database, store_options};
use crate::support::errors::ErrorLog;
use crate::support::frames::{FrameClient, get};
use crate::support::http::Client;
use crate::support::tls::{Files, connect, start};
use crate::support::wait::eventually;

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
    let system = waggle::model::system::System::real();
    let refused =
        app::start(&settings, store_options(database.options.clone()), keys, system).await.err().unwrap();
    let expected = format!("TLS cannot be configured: {} holds no private key in PEM", files.key().display());
    assert!(refused.to_string().starts_with(&expected), "{refused}");
    assert_eq!(json!(refused.to_string()).as_str().map(|error| error.contains("no key\"")), Some(false));
}
