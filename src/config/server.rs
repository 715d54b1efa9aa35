//! `[server]`: where the gateway listens and who may reach it there.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use ipnet::IpNet;
use url::Host;

use super::{
    embedded::PATH,
    number::{Count, Size, Time},
    origin::{AllowedOrigin, default_origins},
    public_url::PublicUrl,
    reader::Reader,
    text::{List, Text},
};

const KIB: u32 = 1 << 10;

/// Where the gateway listens and who may reach it there.
#[derive(Clone, Debug)]
pub struct Server {
    /// The address of the MCP endpoints, and of everything without a listener of its own.
    pub listen: SocketAddr,
    /// What TLS is spoken with; `None`: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// What clients reach the gateway by.
    pub public_url: PublicUrl,
    /// The hosts that a `Host` header may name, whatever its port; `None`: unchecked.
    pub allowed_hosts: Option<Vec<Host>>,
    /// The origins of the web pages that may call.
    pub allowed_origins: Vec<AllowedOrigin>,
    /// The proxies that are believed when they report the address of a client.
    pub trusted_proxies: Vec<IpNet>,
    /// The one header in which they report it.
    pub forwarded_header: ForwardedHeader,
    /// How long requests under way may go on once the gateway is told to stop.
    pub shutdown: Duration,
    /// How long requests are still taken after `SIGTERM`, while readiness fails.
    pub drain: Duration,
    /// How long one request may take. A stream is no request in this sense.
    pub request: Duration,
    /// How long the bytes of a body are counted before they are held against the rate below.
    pub body_window: Duration,
    /// How many bytes of a body must arrive a second; a slower one is answered `408`.
    pub body_bytes_per_second: u32,
    /// How long the head of a request may take from its first byte, and a TLS handshake.
    pub head: Duration,
    /// How long a connection may stay open without a request.
    pub idle: Duration,
    /// How many headers a request may have.
    pub header_count: usize,
    /// How long the head of a request may be, in bytes.
    pub header_bytes: u32,
    /// How many connections one listener has open at once; those above wait to be accepted.
    pub connections: usize,
    /// How many of them may come from one address that is no trusted proxy; those above are closed.
    pub connections_per_address: usize,
}

/// The header in which trusted proxies report the address of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`: addresses with commas between.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl ForwardedHeader {
    const ALL: [Self; 2] = [Self::XForwardedFor, Self::Forwarded];

    fn as_str(self) -> &'static str {
        match self {
            Self::XForwardedFor => "X-Forwarded-For",
            Self::Forwarded => "Forwarded",
        }
    }
}

/// The files that TLS is spoken with, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and behind it those that vouch for it.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

impl Server {
    pub(super) fn read(reader: &mut Reader) -> Self {
        let listen = reader.value("server.listen", &ADDRESS, SocketAddr::from((Ipv4Addr::LOCALHOST, 8094)));
        let tls = tls(reader);
        let public_url = PublicUrl::of(listen, tls.is_some());
        let public_url = reader.value("server.public_url", &PUBLIC_URL, public_url);
        let loopback = listen.ip().to_canonical().is_loopback();
        let hosts = loopback.then(loopback_hosts);
        let origins = default_origins(loopback, public_url.origin());
        Self {
            listen,
            tls,
            public_url,
            allowed_hosts: reader.optional("server.allowed_hosts", &HOSTS, hosts),
            allowed_origins: reader.value("server.allowed_origins", &ORIGINS, origins),
            trusted_proxies: reader.value("server.trusted_proxies", &PROXIES, Vec::new()),
            forwarded_header: reader.value(
                "server.forwarded_header",
                &FORWARDED_HEADER,
                ForwardedHeader::default(),
            ),
            shutdown: reader.value(
                "server.shutdown_seconds",
                &Time::seconds(0..=600),
                Duration::from_secs(10),
            ),
            drain: reader.value("server.drain_seconds", &Time::seconds(0..=600), Duration::from_secs(5)),
            request: reader.value(
                "server.request_seconds",
                &Time::seconds(1..=3600),
                Duration::from_secs(30),
            ),
            body_window: reader.value(
                "server.body_window_seconds",
                &Time::seconds(1..=3600),
                Duration::from_secs(5),
            ),
            body_bytes_per_second: reader.value(
                "server.body_bytes_per_second",
                &Count(0..=1_000_000_000),
                65_536,
            ),
            head: reader.value("server.head_seconds", &Time::seconds(1..=3600), Duration::from_secs(15)),
            idle: reader.value("server.idle_seconds", &Time::seconds(1..=86_400), Duration::from_secs(95)),
            header_count: reader.value("server.header_count", &Count(16..=1_000), 100),
            header_bytes: reader.value("server.header_bytes", &Size(8 * KIB..=1024 * KIB), 32 * KIB),
            connections: reader.value("server.connections", &Count(1..=1_000_000), 10_000),
            connections_per_address: reader.value(
                "server.connections_per_address",
                &Count(1..=1_000_000),
                1_000,
            ),
        }
    }

    /// Where an address of this gateway's is reached.
    pub fn url_of(&self, address: SocketAddr) -> PublicUrl {
        PublicUrl::of(address, self.tls.is_some())
    }

    /// The same once the listener is bound: where the system chose a port in the place of port 0, a public URL
    /// that was not given has that port too.
    #[must_use]
    pub fn bound_to(mut self, address: SocketAddr) -> Self {
        if self.public_url == self.url_of(self.listen) {
            self.public_url = self.url_of(address);
        }
        self.listen = address;
        self
    }
}

/// Both files, or neither: who means TLS never gets plain HTTP.
fn tls(reader: &mut Reader) -> Option<TlsFiles> {
    let certificate = reader.optional("server.tls_certificate", &PATH, None);
    let key = reader.optional("server.tls_key", &PATH, None);
    for (given, needed) in
        [("server.tls_certificate", "server.tls_key"), ("server.tls_key", "server.tls_certificate")]
    {
        if reader.was_given(given) && !reader.was_given(needed) {
            reader.refuse(needed, &format!("required with {given}"));
        }
    }
    Some(TlsFiles { certificate: certificate?, key: key? })
}

pub(super) const ADDRESS: Text<SocketAddr> = Text { parse: address, show: SocketAddr::to_string };
const PUBLIC_URL: Text<PublicUrl> = Text { parse: PublicUrl::parse, show: PublicUrl::to_string };
const HOSTS: List<Host> =
    List { item: Text { parse: host, show: Host::to_string }, never_empty: Some("refuses every request") };
const PROXIES: List<IpNet> =
    List { item: Text { parse: network, show: IpNet::to_string }, never_empty: None };
const FORWARDED_HEADER: Text<ForwardedHeader> =
    Text { parse: forwarded_header, show: |header| header.as_str().to_owned() };
const ORIGINS: List<AllowedOrigin> =
    List { item: Text { parse: AllowedOrigin::parse, show: AllowedOrigin::to_string }, never_empty: None };

fn address(text: &str) -> Result<SocketAddr, String> {
    let named = text.starts_with("localhost");
    let hint = if named { "; a name is not resolved" } else { "" };
    let wrong = |_| format!("is not an address and a port, such as 127.0.0.1:8094 or [::]:8094{hint}");
    text.parse().map_err(wrong)
}

fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse().map(|address: IpAddr| IpNet::from(address)));
    network.map_err(|_| "is not an address or a network such as 10.0.0.0/8".to_owned())
}

fn forwarded_header(text: &str) -> Result<ForwardedHeader, String> {
    let named = |header: &ForwardedHeader| header.as_str().eq_ignore_ascii_case(text);
    let found = ForwardedHeader::ALL.into_iter().find(named);
    found.ok_or_else(|| "is neither X-Forwarded-For nor Forwarded".to_owned())
}

fn host(text: &str) -> Result<Host, String> {
    let host = Host::parse(text).ok().filter(|_| !text.contains('*'));
    host.ok_or_else(|| {
        "is not a host such as mcp.example.com or [::1], without scheme, port or wildcard".to_owned()
    })
}

fn loopback_hosts() -> Vec<Host> {
    vec![
        Host::Domain("localhost".to_owned()),
        Host::Ipv4(Ipv4Addr::LOCALHOST),
        Host::Ipv6(Ipv6Addr::LOCALHOST),
    ]
}
