//! `[server]`: listener, TLS, accepted hosts and origins, proxies, and the bounds of connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use url::Host;

use super::embedded::PATH;
use super::origin::{AllowedOrigin, default_origins};
use super::reader::Reader;
use super::section::section;
use super::text::{List, Text};
use super::urls::PublicUrl;

const KIB: u32 = 1 << 10;

section! {
    /// Listener, TLS, accepted hosts and origins, proxies, and the bounds of connections.
    #[derive(Clone, Debug)]
    pub struct Server["server"] {
        /// The address and port of the MCP endpoints, and of everything without a listener of its own.
        listen: value(SocketAddr, ADDRESS) = SocketAddr::from((Ipv4Addr::LOCALHOST, 8094)),
        /// TLS, on every listener: the PEM file of the certificate, followed by its intermediate certificates. Reloaded when
        /// it changes. Requires `tls_key`. Default: plain HTTP.
        tls_certificate: optional(PathBuf, PATH, "/etc/waggle/tls/fullchain.pem"),
        /// The PEM file of the certificate's private key.
        tls_key: optional(PathBuf, PATH, "/etc/waggle/tls/privkey.pem"),
        /// The URL that clients use. Default: http:// or https:// and the listening address.
        public_url: derived(PublicUrl, PUBLIC_URL) = PublicUrl::of(listen, tls_certificate.is_some()),
        /// The accepted Host headers, without ports. Default: these while listening on loopback, else any.
        allowed_hosts: optional(Vec<Host>, HOSTS, ["localhost", "127.0.0.1", "[::1]"]) = default_hosts(listen),
        /// The accepted Origin headers (CORS). Default: these while listening on loopback, and the public URL's.
        allowed_origins: derived(Vec<AllowedOrigin>, ORIGINS) = default_origins(is_loopback(listen), public_url.origin()),
        /// The proxies that are trusted to report the address of a client, as addresses or networks.
        trusted_proxies: value(Vec<IpNet>, PROXIES) = Vec::new(),
        /// The one header in which they report it: X-Forwarded-For, or Forwarded (RFC 7239). Each proxy must append the
        /// address of its peer, or replace the header.
        forwarded_header: value(ForwardedHeader, FORWARDED_HEADER) = ForwardedHeader::default(),
        /// Graceful shutdown: how long requests in flight may take after the gateway stopped accepting others.
        shutdown: seconds(0..=600) = 10,
        /// How long requests are still accepted after SIGTERM, while /readyz fails, so that load balancers notice first.
        drain: seconds(0..=600) = 5,
        /// How long one request may take, and a source nine tenths of that; streams are exempt.
        request: seconds(1..=3600) = 30,
        /// The window over which the speed of a body is measured.
        body_window: seconds(1..=3600) = 5,
        /// The minimum speed of a body, on average over each window. A slower one is answered 400. 0 disables the check.
        body_bytes_per_second: count(u32, 0..=1_000_000_000) = 65_536,
        /// How long a client may take to receive an answer of more than 16 KiB, beside the time that follows from its length and
        /// the minimum speed. Then its connection is closed. Streams are exempt.
        answer: seconds(1..=3600) = 60,
        /// The minimum speed at which a client receives such an answer. 0 disables the check.
        answer_bytes_per_second: count(u32, 0..=1_000_000_000) = 16_384,
        /// How long the head of a request may take from its first byte, and a TLS handshake.
        head: seconds(1..=3600) = 15,
        /// The idle timeout of a connection without a request: longer than that of clients, which is 90 seconds mostly.
        idle: seconds(1..=86_400) = 95,
        /// How many headers a request may have; more are answered 431.
        header_count: count(usize, 16..=1_000) = 100,
        /// How long the head of a request may be; a longer one is answered 431.
        header_bytes: size(u32, 8 * KIB..=1024 * KIB) = 32 * KIB,
        /// How many connections a listener has open; further ones wait to be accepted.
        connections: count(usize, 1..=1_000_000) = 10_000,
        /// How many of them may come from one address (an IPv6 /64 is one) that is not a trusted proxy; further ones are
        /// closed. Behind a proxy that is missing in `trusted_proxies` all clients are one address.
        connections_per_address: count(usize, 1..=1_000_000) = 1_000,
    }
}

/// The header in which trusted proxies report the address of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`: addresses separated by commas.
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

/// The files of TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by its intermediate certificates.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

impl Server {
    /// The files of TLS; `None`: plain HTTP.
    pub fn tls(&self) -> Option<TlsFiles> {
        let (certificate, key) = (self.tls_certificate.clone()?, self.tls_key.clone()?);
        Some(TlsFiles { certificate, key })
    }

    /// Reports one file of TLS without the other: a gateway that is configured for TLS never serves plain HTTP.
    pub(super) fn check_tls(reader: &mut Reader) {
        let names = ["server.tls_certificate", "server.tls_key"];
        for (given, needed) in [(names[0], names[1]), (names[1], names[0])] {
            if reader.was_given(given) && !reader.was_given(needed) {
                reader.refuse(needed, &format!("required with {given}"));
            }
        }
    }

    /// The URL of an address of this gateway.
    pub fn url_of(&self, address: SocketAddr) -> PublicUrl {
        PublicUrl::of(address, self.tls_certificate.is_some())
    }

    /// The URL of a listener from this machine: loopback if it listens on every address.
    pub fn local_url(&self, listen: SocketAddr) -> PublicUrl {
        let ip = match listen.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        self.url_of(SocketAddr::new(ip, listen.port()))
    }

    /// The settings after the listener is bound: if the system chose the port (port 0), a derived public URL has that
    /// port too.
    #[must_use]
    pub fn bound_to(mut self, address: SocketAddr) -> Self {
        if self.public_url == self.url_of(self.listen) {
            self.public_url = self.url_of(address);
        }
        self.listen = address;
        self
    }
}

pub(super) const ADDRESS: Text<SocketAddr> = Text { parse: address, display: SocketAddr::to_string };
const PUBLIC_URL: Text<PublicUrl> = Text { parse: PublicUrl::parse, display: PublicUrl::to_string };
const HOSTS: List<Host> = List {
    item: Text { parse: host, display: Host::to_string },
    never_empty: Some("would refuse every request"),
};
const PROXIES: List<IpNet> =
    List { item: Text { parse: network, display: IpNet::to_string }, never_empty: None };
const FORWARDED_HEADER: Text<ForwardedHeader> =
    Text { parse: forwarded_header, display: |header| header.as_str().to_owned() };
const ORIGINS: List<AllowedOrigin> =
    List { item: Text { parse: AllowedOrigin::parse, display: AllowedOrigin::to_string }, never_empty: None };

fn address(text: &str) -> Result<SocketAddr, String> {
    // RFC 6761, section 6.3: the name is always a loopback address. Other names are not resolved.
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    if let Some(port) = local {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse().map_err(|_| "is not an address and a port, such as 127.0.0.1:8094 or [::]:8094".to_owned())
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

fn is_loopback(listen: SocketAddr) -> bool {
    listen.ip().to_canonical().is_loopback()
}

/// The names of this machine while listening on loopback; `None`, which accepts any, otherwise.
fn default_hosts(listen: SocketAddr) -> Option<Vec<Host>> {
    is_loopback(listen).then(|| {
        vec![
            Host::Domain("localhost".to_owned()),
            Host::Ipv4(Ipv4Addr::LOCALHOST),
            Host::Ipv6(Ipv6Addr::LOCALHOST),
        ]
    })
}
