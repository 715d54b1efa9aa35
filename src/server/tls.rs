//! TLS: the certificate of new connections, reloaded when its files change.

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

/// How often the files are read. Their contents are compared, not their times: a replaced symbolic link and a kept
/// modification time are noticed as well.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The maximum size of a file, larger than any chain of certificates.
const MAX_BYTES: u64 = 1 << 20;
/// The settings of the files.
const CERTIFICATE: &str = "server.tls_certificate";
const KEY: &str = "server.tls_key";
/// The application protocols (ALPN), the preferred first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path}: {1}", path = .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// A file is longer than any certificate or key.
    #[error("{path} is longer than 1 MiB: expected a PEM file of a certificate or its key", path = .0.display())]
    Long(PathBuf),
    /// A file has no certificate, or a broken one.
    #[error("{path} holds no certificate in PEM: {1}", path = .0.display())]
    Certificate(PathBuf, rustls::pki_types::pem::Error),
    /// A file has no key.
    #[error("{path} holds no private key in PEM: {1}", path = .0.display())]
    Key(PathBuf, rustls::pki_types::pem::Error),
    /// They are invalid, alone or together.
    #[error("{cert} and {key} are not a valid certificate and its private key: {2}", cert = .0.display(), key = .1.display())]
    Mismatch(PathBuf, PathBuf, #[source] rustls::Error),
}

/// What is wrong with the files, each with its setting, also if both are bad.
pub(crate) async fn problems(files: &TlsFiles) -> Vec<(&'static str, TlsError)> {
    let TlsFiles { certificate, key } = files;
    let chain = read(certificate).await.and_then(|pem| parse_chain(&pem, certificate));
    let secret = read(key).await.and_then(|pem| parse_key(&pem, key));
    match (chain, secret) {
        (Ok(chain), Ok(secret)) => {
            config(chain, secret, files).err().map(|error| (CERTIFICATE, error)).into_iter().collect()
        }
        (chain, secret) => {
            let chain = chain.err().map(|error| (CERTIFICATE, error));
            chain.into_iter().chain(secret.err().map(|error| (KEY, error))).collect()
        }
    }
}

/// The certificate of new connections.
pub(crate) struct Tls {
    current: ArcSwap<ServerConfig>,
    /// Locked while `current` is replaced.
    seen: Mutex<Seen>,
}

/// The files, and the digest of what was read last, valid or not.
#[derive(Clone, PartialEq, Eq)]
struct Seen {
    files: TlsFiles,
    digest: [u8; 32],
}

/// A certificate that was read and validated.
pub(crate) struct Prepared {
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
    /// If they cannot be read or are invalid.
    pub(crate) async fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let Prepared { config, digest, files } = Prepared::read(files).await?;
        Ok(Self { current: ArcSwap::new(config), seen: Mutex::new(Seen { files, digest }) })
    }

    /// Reads files, which may be others than before, without using them yet.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) async fn prepare(&self, files: TlsFiles) -> Result<Prepared, TlsError> {
        Prepared::read(files).await
    }

    /// Uses a prepared certificate for new connections.
    pub(crate) fn replace(&self, Prepared { config, digest, files }: Prepared) {
        let mut seen = self.seen.lock();
        *seen = Seen { files, digest };
        self.current.store(config);
    }

    /// Accepts the handshake of a new connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.load_full())
    }

    /// Reloads the files whenever they change, until `stop`. Invalid files change nothing: the previous certificate stays
    /// in use. Open connections keep theirs.
    pub(super) async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unreadable = false;
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let reloaded = self.reload().await;
            let failed = matches!(reloaded, Err(TlsError::File(..)));
            match reloaded {
                Ok(false) => {}
                Ok(true) => tracing::info!("TLS certificate reloaded"),
                // A missing file is reported once.
                Err(_) if failed && unreadable => {}
                Err(error) => {
                    tracing::error!(%error, "TLS certificate not reloaded; the previous one stays in use");
                }
            }
            unreadable = failed;
        }
    }

    /// Reads the files; returns whether a new certificate is in use.
    async fn reload(&self) -> Result<bool, TlsError> {
        let before = self.seen.lock().clone();
        let contents = Contents::read(&before.files).await?;
        self.renew(&before, &contents)
    }

    /// Uses the contents of files that were read after `before` was seen. Returns whether they are new: not if a prepared
    /// certificate was used meanwhile, which may be newer.
    fn renew(&self, before: &Seen, contents: &Contents) -> Result<bool, TlsError> {
        let digest = contents.digest();
        let mut seen = self.seen.lock();
        if *seen != *before || digest == before.digest {
            return Ok(false);
        }
        seen.digest = digest;
        self.current.store(Arc::new(contents.config(&before.files)?));
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

    fn config(&self, files: &TlsFiles) -> Result<ServerConfig, TlsError> {
        let chain = parse_chain(&self.certificate, &files.certificate)?;
        config(chain, parse_key(&self.key, &files.key)?, files)
    }
}

fn parse_chain(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| TlsError::Certificate(path.to_owned(), error);
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    if chain.is_empty() { Err(failed(rustls::pki_types::pem::Error::NoItemsFound)) } else { Ok(chain) }
}

fn parse_key(pem: &[u8], path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| TlsError::Key(path.to_owned(), error))
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    secret: PrivateKeyDer<'static>,
    files: &TlsFiles,
) -> Result<ServerConfig, TlsError> {
    let mismatch = |error| TlsError::Mismatch(files.certificate.clone(), files.key.clone(), error);
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(mismatch)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, secret).map_err(mismatch)?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Ok(config)
}

async fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |error| TlsError::File(path.to_owned(), error);
    if tokio::fs::metadata(path).await.map_err(failed)?.len() > MAX_BYTES {
        return Err(TlsError::Long(path.to_owned()));
    }
    tokio::fs::read(path).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair};

    use super::{Contents, Tls};
    use crate::config::TlsFiles;

    /// Writes a new certificate with its key.
    fn issue(folder: &Path, name: &str) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
        let path = |extension| folder.join(format!("{name}.{extension}"));
        let files = TlsFiles { certificate: path("pem"), key: path("key") };
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    #[tokio::test]
    async fn reload_restores_no_certificate_that_was_replaced_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let old = issue(folder.path(), "old");
        let tls = Tls::load(old.clone()).await.unwrap();
        issue(folder.path(), "old");
        let before = tls.seen.lock().clone();
        let read = Contents::read(&old).await.unwrap();
        for files in [old.clone(), issue(folder.path(), "new")] {
            issue(folder.path(), "old");
            tls.replace(tls.prepare(files).await.unwrap());
            let current = tls.current.load_full();
            assert!(!tls.renew(&before, &read).unwrap());
            assert!(Arc::ptr_eq(&current, &tls.current.load_full()));
        }
        assert!(!tls.reload().await.unwrap(), "the new files have not changed");
        issue(folder.path(), "new");
        assert!(tls.reload().await.unwrap());
    }
}
