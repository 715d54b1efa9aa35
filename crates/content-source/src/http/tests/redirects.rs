//! Where a fetch may lead: redirects, addresses, certificates.

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::*;

const NOT: Result<&[u8], FetchError> = Err(FetchError::NotAllowed);

fn redirect(to: &str) -> Vec<Step> {
    answer("302 Found", &format!("Location: {to}\r\n"), b"")
}

/// Redirects `/from` to a place, `/loop/n` to `/loop/n+1`, and answers `there` elsewhere.
async fn redirecting(to: String) -> Server {
    Server::start(move |request, port| match request.target.as_str() {
        "/from" => redirect(&to.replace("PORT", &port.to_string())),
        "/hop/3" => answer("200 OK", "", b"there"),
        target => match target.strip_prefix("/hop/").or_else(|| target.strip_prefix("/loop/")) {
            Some(hop) => redirect(&format!("{}", hop.parse::<u32>().unwrap() + 1)),
            None => answer("200 OK", "", b"there"),
        },
    })
    .await
}

#[tokio::test]
async fn redirects_lead_to_known_origins_only() {
    let other = Server::start(|_, _| answer("200 OK", "", b"other")).await;
    let there: Result<&[u8], FetchError> = Ok(b"there");
    let cases: Vec<(String, Result<&[u8], FetchError>)> = vec![
        ("/x".into(), there),
        ("x?y=z#f".into(), there),
        ("../../x".into(), there),
        ("//api.test:PORT/x".into(), there),
        ("http://API.test:PORT/x".into(), there),
        ("http://api.test:PORT\\x".into(), there),
        (format!("http://listed.test:{}/x", other.port), Ok(b"other")),
        (format!("//listed.test:{}/x", other.port), Ok(b"other")),
        (format!("http://LISTED.test.:{}/x", other.port), NOT),
        // Another port, host or scheme.
        (format!("http://api.test:{}/x", other.port), NOT),
        (format!("http://other.test:{}/x", other.port), NOT),
        ("http://ported.test:1/x".into(), NOT),
        ("http://api.test:PORT@other.test/x".into(), NOT),
        ("http://user@api.test:PORT/x".into(), NOT),
        ("http://user:password@listed.test:PORT/x".into(), NOT),
        ("http://evil.listed.test:PORT/x".into(), NOT),
        ("http://listed.test.evil.test:PORT/x".into(), NOT),
        ("ftp://api.test:PORT/x".into(), NOT),
        ("file:///etc/passwd".into(), NOT),
        ("gopher://listed.test/x".into(), NOT),
        ("data:text/plain,x".into(), NOT),
        ("javascript:x".into(), NOT),
        ("http://".into(), NOT),
        // Addresses that are not allowed, also where the host is listed.
        ("http://10.0.0.1/x".into(), NOT),
        ("http://0x0a000001/x".into(), NOT),
        ("http://[::1]/x".into(), NOT),
        ("http://[fd00:ec2::254]/x".into(), NOT),
        ("http://169.254.169.254/latest/meta-data/".into(), NOT),
        ("http://internal.test/x".into(), NOT),
        ("http://mixed.test/x".into(), NOT),
        ("http://127.0.0.1:1/x".into(), NOT),
        // Followed: nothing listens at the port.
        ("https://listed.test:1/x".into(), Err(FetchError::Unreachable)),
    ];
    for (to, expected) in cases {
        let server = redirecting(to.clone()).await;
        let listed = ["listed.test", "ported.test:2", "10.0.0.1", "[::1]", "internal.test", "mixed.test"];
        let source = connection(&server.url(), &json!({"allowRedirects": listed}), &json!({}));
        assert_eq!(body(&source, "from").await.as_deref().map_err(|error| *error), expected, "{to}");
    }
}

#[tokio::test]
async fn three_redirects_are_followed() {
    let server = redirecting(String::new()).await;
    let source = plain(&server.url());
    assert_eq!(body(&source, "hop/0").await.as_deref(), Ok(&b"there"[..]));
    assert_eq!(server.targets(), ["/hop/0", "/hop/1", "/hop/2", "/hop/3"]);
    assert_eq!(body(&source, "loop/0").await, Err(FetchError::Rejected));
    assert_eq!(server.targets()[4..], ["/loop/0", "/loop/1", "/loop/2", "/loop/3"]);
}

#[tokio::test]
async fn headers_go_to_the_origin_of_the_base_url_alone() {
    let other = Server::start(|_, _| answer("200 OK", "", b"other")).await;
    let server = redirecting(format!("http://listed.test:{}/x", other.port)).await;
    let settings =
        json!({"allowRedirects": ["listed.test"], "headers": {"X-Team": "maps", "User-Agent": "me"}});
    let secrets = json!({"headers": {"Authorization": "Bearer secret"}});
    let source = connection(&server.url(), &settings, &secrets);
    assert_eq!(body(&source, "from").await.as_deref(), Ok(&b"other"[..]));
    assert_eq!(server.requests()[0].headers["authorization"], "Bearer secret");
    let sent: Vec<_> = other.requests()[0].headers.keys().cloned().collect();
    assert_eq!(sent, ["accept", "accept-encoding", "host"]);
}

/// URLs of this machine in all forms, and a server that waits at their port.
#[tokio::test]
async fn a_refused_address_is_never_connected_to() {
    let server = Server::start(|_, _| answer("200 OK", "", b"x")).await;
    let hosts = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
        "１２７.０.０.１",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "api.test",
        "API.test.",
        "ａpi.test",
        "mixed.test",
    ];
    for host in hosts {
        let settings =
            json!({"baseUrl": format!("http://{host}:{}", server.port), "allowNetworks": ["10.0.0.0/8"]});
        let source = connect(Kind::Http, &settings, &Map::new(), &server::context()).unwrap();
        let expected = if host == "API.test." { FetchError::Unreachable } else { FetchError::NotAllowed };
        assert_eq!(body(&source, "a").await, Err(expected), "{host}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_name_that_changes_is_refused_when_it_is_resolved_again() {
    let server = Server::start(|_, _| answer("200 OK", "", b"x")).await;
    let source = plain(&format!("http://rebinds.test:{}", server.port));
    assert_eq!(body(&source, "a").await.as_deref(), Ok(&b"x"[..]));
    assert_eq!(body(&source, "a").await, Err(FetchError::NotAllowed));
    assert_eq!(server.connections(), 1);
    let unknown = plain(&format!("http://unknown.example:{}", server.port));
    assert_eq!(body(&unknown, "a").await, Err(FetchError::Unreachable));
}

#[tokio::test]
async fn certificates_are_verified_for_the_name() {
    let certified = rcgen::generate_simple_self_signed(["api.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let chain = vec![certified.cert.der().clone()];
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    let server = Server::start_with(Some(TlsAcceptor::from(Arc::new(config))), |request, port| match request
        .target
        .as_str()
    {
        "/down" => redirect(&format!("http://api.test:{port}/x")),
        _ => answer("200 OK", "", b"secure"),
    })
    .await;
    let url = |name: &str| format!("https://{name}:{}", server.port);
    let ca = json!({"ca": certified.cert.pem(), "allowRedirects": ["api.test"]});
    let trusting = connection(&url("api.test"), &ca, &json!({}));
    assert_eq!(body(&trusting, "a").await.as_deref(), Ok(&b"secure"[..]));
    assert_eq!(body(&trusting, "down").await, Err(FetchError::NotAllowed));
    let cases = [
        ("no authority", plain(&url("api.test"))),
        ("another name", connection(&url("other.test"), &ca, &json!({}))),
        ("an address", connection(&url("127.0.0.1"), &ca, &json!({}))),
    ];
    for (case, source) in cases {
        assert_eq!(body(&source, "a").await, Err(FetchError::Unreachable), "{case}");
    }
}
