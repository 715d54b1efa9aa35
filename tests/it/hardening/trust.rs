//! Which certificates the command line trusts, and what it says about others.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use time::OffsetDateTime;
use time::ext::NumericalDuration;

use crate::apply::{Output, output, run};
use crate::support::app::Replica;
use crate::support::cluster::database;
use crate::support::tls::{Files, start};

/// An authority, and the certificates that it issues.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: String,
}

impl Authority {
    fn new(folder: &TempDir, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = folder.path().join(name);
        fs::write(&file, issuer.pem()).unwrap();
        Self { issuer, file: file.display().to_string() }
    }

    /// Writes a certificate for `localhost` that is valid until a time.
    fn issue(&self, files: &Files, not_after: OffsetDateTime) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = not_after;
        fs::write(files.certificate(), params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        fs::write(files.key(), key.serialize_pem()).unwrap();
    }
}

/// Lists the tenants of a gateway; `PORT` stands for its port in what is printed.
async fn list(replica: &Replica, url: &str, more: &[(&str, &str)], flags: &[&str]) -> Output {
    let port = replica.running.address.port().to_string();
    let url = url.replace("PORT", &port);
    let own = [("WAGGLE_URL", url.as_str()), ("WAGGLE_KEY", replica.operator.as_str())];
    let variables = if more.is_empty() { &own[..] } else { more };
    let (code, out, error) = run(variables, &[flags, &["tenant", "list", "-o", "name"]].concat(), "").await;
    (code, out, error.replace(&port, "PORT"))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_certificates_of_cacert_are_trusted() {
    let (database, folder) = (database().await, TempDir::new().unwrap());
    let (authority, other) = (Authority::new(&folder, "ca.pem"), Authority::new(&folder, "other.pem"));
    let (files, _) = Files::new();
    authority.issue(&files, OffsetDateTime::now_utc() + 1.days());
    let replica = start(&database, &files, &[]).await;
    let url = "https://localhost:PORT";
    let trusting = ["--cacert", authority.file.as_str()];
    assert_eq!(list(&replica, url, &[], &trusting).await, output(0, "", ""));

    let untrusted = "https://localhost:PORT: invalid peer certificate: UnknownIssuer; to trust its issuer, name the issuer's certificate with --cacert FILE\n";
    assert_eq!(list(&replica, url, &[], &["--cacert", &other.file]).await, output(1, "", untrusted));
    assert_eq!(list(&replica, url, &[], &[]).await, output(1, "", untrusted), "an authority of the system");

    let (code, out, error) = list(&replica, "https://127.0.0.1:PORT", &[], &trusting).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(error.ends_with("; call the gateway by a name of its certificate\n"), "{error}");

    for (flags, expected) in [
        (["--cacert", "/nowhere"], "cannot read /nowhere: No such file or directory (os error 2)\n"),
        (["--cacert", "/dev/null"], "/dev/null: expected PEM certificates\n"),
    ] {
        assert_eq!(list(&replica, url, &[], &flags).await, output(2, "", expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn context_stores_the_authority_of_its_gateway() {
    let (database, folder) = (database().await, TempDir::new().unwrap());
    let authority = Authority::new(&folder, "ca.pem");
    let (files, _) = Files::new();
    authority.issue(&files, OffsetDateTime::now_utc() + 1.days());
    let replica = start(&database, &files, &[]).await;
    let url = format!("https://localhost:{}", replica.running.address.port());
    let home = folder.path().to_str().unwrap();
    let added = ["context", "add", "tls", "--url", &url, "--cacert", &authority.file];
    let variables = [("XDG_CONFIG_HOME", home), ("WAGGLE_KEY", replica.operator.as_str())];
    assert_eq!(run(&variables, &added, "").await, output(0, "added context tls\n", ""));
    assert_eq!(list(&replica, "", &[("XDG_CONFIG_HOME", home)], &[]).await, output(0, "", ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_certificate_and_missing_tls_are_named() {
    let (database, folder) = (database().await, TempDir::new().unwrap());
    let authority = Authority::new(&folder, "ca.pem");
    let (files, _) = Files::new();
    authority.issue(&files, OffsetDateTime::now_utc() - 1.days());
    let replica = start(&database, &files, &[]).await;
    let trusting = ["--cacert", authority.file.as_str()];
    let (code, out, error) = list(&replica, "https://localhost:PORT", &[], &trusting).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    let remedy = "; renew the certificate of the gateway, or correct the clock of this machine\n";
    assert!(error.ends_with(remedy), "{error}");

    let (_database, plain) = crate::support::app::gateway().await;
    let (code, out, error) = list(&plain, "https://localhost:PORT", &[], &trusting).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    let remedy = "; the port does not serve TLS: use a URL with http://, or another port\n";
    assert!(error.ends_with(remedy), "{error}");
}
