//! The egress policy, against server-side request forgery (SSRF): which addresses a connection may reach, one decision for all
//! kinds of sources.
//!
//! Public unicast addresses are allowed, all others only where the connection's `allowNetworks` names them. A host is
//! resolved once, all of its addresses are checked, and the caller connects to one of the addresses it is given, never to
//! the name: an answer of DNS that differs a moment later changes nothing.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tokio::sync::Semaphore;
use url::Host;

use crate::error::FetchError;

/// How many look-ups the system's resolver runs at a time. One that hangs occupies a thread until it ends.
const MAX_LOOKUPS: usize = 64;

/// How many addresses of a host are tried.
const MAX_ADDRESSES: usize = 16;

/// Resolves names to addresses.
pub trait Resolve: Send + Sync {
    /// The addresses of a host.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
            let host = host.to_owned();
            let lookup = move || {
                // Held by the thread: it outlives a caller that gives up.
                let _permit = permit;
                (host.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect())
            };
            tokio::task::spawn_blocking(lookup).await.map_err(io::Error::other)?
        })
    }
}

/// What a connection may reach.
#[derive(Clone)]
pub struct Egress {
    allow_networks: Vec<IpNet>,
    resolver: Arc<dyn Resolve>,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("allow_networks", &self.allow_networks).finish_non_exhaustive()
    }
}

impl Egress {
    /// Allows public addresses and those of `allow_networks`.
    pub fn new(allow_networks: Vec<IpNet>, resolver: Arc<dyn Resolve>) -> Self {
        Self { allow_networks, resolver }
    }

    /// Whether an address may be connected to.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.names(address)
            || match address {
                IpAddr::V4(address) => is_public_v4(address),
                // The same destination, written as the operating system writes it for sockets of both families.
                IpAddr::V6(address) => match address.to_ipv4_mapped() {
                    Some(embedded) => self.allows(IpAddr::V4(embedded)),
                    None => is_public_v6(address),
                },
            }
    }

    /// Whether `allowNetworks` has an address: what a rule may be relaxed for.
    pub fn names(&self, address: IpAddr) -> bool {
        self.allow_networks.iter().any(|network| network.contains(&address))
    }

    /// The addresses of a host, all of them allowed. The host is a name, or an address in any form that a URL may have.
    ///
    /// # Errors
    /// [`FetchError::NotAllowed`] for a host that is neither, and when any of its addresses is refused;
    /// [`FetchError::Unreachable`] when the name does not resolve.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, FetchError> {
        let mut addresses = match parse_host(host)? {
            Host::Ipv4(address) => vec![IpAddr::V4(address)],
            Host::Ipv6(address) => vec![IpAddr::V6(address)],
            Host::Domain(name) => self.resolver.resolve(&name).await.map_err(|_| FetchError::Unreachable)?,
        };
        if addresses.is_empty() {
            return Err(FetchError::Unreachable);
        }
        // A name with an internal and a public address is refused, whichever comes first.
        if !addresses.iter().all(|address| self.allows(*address)) {
            return Err(FetchError::NotAllowed);
        }
        addresses.truncate(MAX_ADDRESSES);
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}

/// Parses as URLs do: numbers in any base and number of parts are IPv4 addresses, names are mapped to ASCII.
fn parse_host(host: &str) -> Result<Host, FetchError> {
    if let Ok(address) = host.parse::<Ipv6Addr>() {
        return Ok(Host::Ipv6(address));
    }
    match Host::parse(host) {
        // No name, and no resolver agrees with another about it.
        Ok(Host::Domain(name)) if name.starts_with('.') || name.contains("..") => Err(FetchError::NotAllowed),
        parsed => parsed.map_err(|_| FetchError::NotAllowed),
    }
}

/// Networks of IPv4 that are not public unicast, as IANA's registry of special-purpose addresses has them.
const SPECIAL_V4: [Ipv4Net; 17] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    // The agent of Azure's virtual machines, which hands out certificates and settings.
    v4(168, 63, 129, 16, 32),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    // Relays of 6to4.
    v4(192, 88, 99, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
    v4(255, 255, 255, 255, 32),
];

/// The only block of IPv6 that IANA has assigned for unicast in the internet.
const GLOBAL_UNICAST: Ipv6Net = v6(0x2000_0000, 3);

/// Networks within [`GLOBAL_UNICAST`] that are not public unicast.
const SPECIAL_V6: [Ipv6Net; 4] = [
    // Assignments of the IETF's protocols: Teredo, benchmarking, ORCHID.
    v6(0x2001_0000, 23),
    v6(0x2001_0db8, 32),
    // 6to4, whose packets go to the IPv4 address that it embeds.
    v6(0x2002_0000, 16),
    v6(0x3fff_0000, 20),
];

/// Where NAT64 embeds the addresses of IPv4 (RFC 6052, section 2.1).
const NAT64: Ipv6Net = v6(0x0064_ff9b, 96);

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

/// The network whose first 32 bits are given, and whose others are 0.
const fn v6(first: u32, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::from_bits((first as u128) << 96), prefix)
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|network| network.contains(&address))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [.., low, high] = address.segments();
    let [a, b] = low.to_be_bytes();
    let [c, d] = high.to_be_bytes();
    let embedded = Ipv4Addr::new(a, b, c, d);
    if NAT64.contains(&address) {
        return is_public_v4(embedded);
    }
    GLOBAL_UNICAST.contains(&address)
        && !SPECIAL_V6.iter().any(|network| network.contains(&address))
        && (!is_isatap(address) || is_public_v4(embedded))
}

/// Whether the interface identifier is that of ISATAP, which ends in an IPv4 address (RFC 5214, section 6.1). The bit for
/// universal and that for groups may be set.
fn is_isatap(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    segments[4] & !0x0300 == 0 && segments[5] == 0x5efe
}

#[cfg(test)]
mod tests;
