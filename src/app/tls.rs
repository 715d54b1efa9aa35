//! TLS: what connections are opened with, read again when its files change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config::TlsFiles;

/// How often the files are looked at. Their contents are compared, not their times: what replaces a file by a link, or
/// keeps its time, is noticed as well.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Longer than any chain of certificates.
const MOST_BYTES: u64 = 1 << 20;
/// What is spoken inside, the preferred first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path}: {1}", path = .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// A file is longer than any certificate or key.
    #[error("{path} is longer than a mebibyte: name the PEM files of a certificate and its key", path = .0.display())]
    Long(PathBuf),
    /// A file has no certificate, or a broken one.
    #[error("{path} holds no certificate in PEM: {1}", path = .0.display())]
    Certificate(PathBuf, rustls::pki_types::pem::Error),
    /// A file has no key.
    #[error("{path} holds no private key in PEM: {1}", path = .0.display())]
    Key(PathBuf, rustls::pki_types::pem::Error),
    /// They do not do, for themselves or together.
    #[error("{cert} and {key} do not do as a certificate and its private key: {2}", cert = .0.display(), key = .1.display())]
    Unfit(PathBuf, PathBuf, #[source] rustls::Error),
}

/// What connections are opened with now.
pub(super) struct Tls {
    files: Mutex<TlsFiles>,
    now: ArcSwap<ServerConfig>,
    /// Of what was looked at last, whether it did or not.
    seen: Mutex<[u8; 32]>,
}

/// Files that were read, and are good.
pub(super) struct Prepared {
    config: Arc<ServerConfig>,
    digest: [u8; 32],
    files: TlsFiles,
}

impl Prepared {
    async fn read(files: TlsFiles) -> Result<Self, TlsError> {
        let contents = Contents::read(&files).await?;
        Ok(Self { config: Arc::new(contents.config(&files)?), digest: contents.digest(), files })
    }
}

/// The contents of both files.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be read, or do not do.
    pub(super) async fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let Prepared { config, digest, files } = Prepared::read(files).await?;
        Ok(Self { now: ArcSwap::new(config), seen: Mutex::new(digest), files: Mutex::new(files) })
    }

    /// Reads files that are to be used from now on, which may be others than before.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(super) async fn prepare(&self, files: TlsFiles) -> Result<Prepared, TlsError> {
        Prepared::read(files).await
    }

    /// Opens the next connections with what was prepared.
    pub(super) fn replace(&self, Prepared { config, digest, files }: Prepared) {
        *self.files.lock() = files;
        *self.seen.lock() = digest;
        self.now.store(config);
    }

    /// What the next connection is opened with.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.now.load_full())
    }

    /// Reads the files again whenever they change, until `stop`. What does not do changes nothing: the certificate
    /// before goes on. Nor do connections that are open.
    pub(super) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unreadable = false;
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let looked = self.look_again().await;
            let failed = matches!(looked, Err(TlsError::File(..)));
            match looked {
                Ok(false) => {}
                Ok(true) => tracing::info!("TLS goes on with a new certificate"),
                // A file that is away is away for many looks: it is told once.
                Err(_) if failed && unreadable => {}
                Err(error) => {
                    tracing::error!(%error, "TLS goes on with the certificate before, which will expire");
                }
            }
            unreadable = failed;
        }
    }

    /// Whether there was something new, which does.
    async fn look_again(&self) -> Result<bool, TlsError> {
        let files = self.files.lock().clone();
        let contents = Contents::read(&files).await?;
        let digest = contents.digest();
        if std::mem::replace(&mut *self.seen.lock(), digest) == digest {
            return Ok(false);
        }
        self.now.store(Arc::new(contents.config(&files)?));
        Ok(true)
    }
}

impl Contents {
    async fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self { certificate: read(&files.certificate).await?, key: read(&files.key).await? })
    }

    fn digest(&self) -> [u8; 32] {
        let certificate = Sha256::digest(&self.certificate);
        Sha256::new().chain_update(certificate).chain_update(&self.key).finalize().into()
    }

    fn config(&self, TlsFiles { certificate, key }: &TlsFiles) -> Result<ServerConfig, TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain.map_err(|error| TlsError::Certificate(certificate.clone(), error))?;
        if chain.is_empty() {
            let error = rustls::pki_types::pem::Error::NoItemsFound;
            return Err(TlsError::Certificate(certificate.clone(), error));
        }
        let secret =
            PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| TlsError::Key(key.clone(), error))?;
        let unfit = |error| TlsError::Unfit(certificate.clone(), key.clone(), error);
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(unfit)?;
        let mut config = builder.with_no_client_auth().with_single_cert(chain, secret).map_err(unfit)?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok(config)
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |error| TlsError::File(path.to_owned(), error);
    if tokio::fs::metadata(path).await.map_err(failed)?.len() > MOST_BYTES {
        return Err(TlsError::Long(path.to_owned()));
    }
    tokio::fs::read(path).await.map_err(failed)
}
