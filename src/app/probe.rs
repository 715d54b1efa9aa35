//! Requests that a check sends: to the gateway that may be running, and to what it depends on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::redirect::Policy;

use crate::config::Server;

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The answer of a gateway to `GET /healthz`.
const ALIVE: &[u8] = br#"{"status":"alive"}"#;

/// The URL of a listener from this machine: loopback if it listens on every address.
pub(super) fn local_url(server: &Server, listen: SocketAddr) -> String {
    let ip = match listen.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    server.url_of(SocketAddr::new(ip, listen.port())).to_string()
}

/// Whether a gateway answers at a local URL, ready or not. Other programs answer `/healthz` too.
pub(super) async fn is_gateway(url: &str) -> bool {
    get(&format!("{url}/healthz"), true).await.is_ok_and(|(_, body)| body == ALIVE)
}

/// The status of a GET, and so much of the body that a gateway is recognized.
pub(super) async fn get(url: &str, local: bool) -> Result<(u16, Vec<u8>), String> {
    get_up_to(ALIVE.len(), url, local).await
}

/// The status and the body of a GET, of which about `most` bytes are read. A local server is trusted with any certificate, since none is valid for its address, and
/// the request has no secrets.
pub(super) async fn get_up_to(most: usize, url: &str, local: bool) -> Result<(u16, Vec<u8>), String> {
    let builder = reqwest::Client::builder().timeout(TIMEOUT).redirect(Policy::none());
    let builder = if local {
        builder.no_proxy().tls_danger_accept_invalid_certs(true).tls_certs_only([])
    } else if url.starts_with("http:") {
        // A minimal container image has no certificates, so searching for them would fail; plain HTTP needs none.
        builder.tls_certs_only([])
    } else {
        builder
    };
    let sent = async {
        let mut answer = builder.build()?.get(url).send().await?;
        let (status, mut body) = (answer.status().as_u16(), Vec::new());
        while body.len() <= most
            && let Some(chunk) = answer.chunk().await?
        {
            body.extend_from_slice(&chunk);
        }
        Ok::<_, reqwest::Error>((status, body))
    };
    sent.await.map_err(|error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        cause.to_string()
    })
}
