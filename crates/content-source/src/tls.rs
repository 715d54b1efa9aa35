//! Whom connections with TLS trust.

use std::sync::{Arc, LazyLock};

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::SettingsError;

/// The authorities of the system, read once: a copy of each connection would take 100 KiB. A system that has none trusts
/// only what `ca` has.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

/// Trusts the system's authorities, and those of `ca` in PEM.
pub(crate) fn configure(ca: Option<&str>) -> Result<ClientConfig, SettingsError> {
    let refuse = |problem: &str| SettingsError::new("settings.ca", problem);
    let mut roots = Arc::clone(&SYSTEM);
    if let Some(pem) = ca {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let certificates = certificates.ok().filter(|found| !found.is_empty());
        let own = Arc::make_mut(&mut roots);
        for certificate in certificates.ok_or_else(|| refuse("must have certificates in PEM"))? {
            own.add(certificate).map_err(|_| refuse("has a certificate that cannot be used"))?;
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|_| refuse("cannot be used"))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
