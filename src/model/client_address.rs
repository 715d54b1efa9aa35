//! The address of a client, and the networks from which a key may be used.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

use super::allocated::allocated;

/// The address of the client that sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientAddress {
    /// The peer of the connection, or the address reported by a trusted proxy. Never an IPv4-mapped IPv6
    /// address.
    Known(IpAddr),
    /// A trusted proxy reports a client without a valid address. Such a client is in no network and not
    /// local.
    Unknown {
        /// The proxy.
        proxy: IpAddr,
    },
}

impl ClientAddress {
    /// The address, if known.
    pub fn known(self) -> Option<IpAddr> {
        match self {
            Self::Known(address) => Some(address),
            Self::Unknown { .. } => None,
        }
    }

    /// The address by which rates and streams are counted: the /64 of an IPv6 address, and one value for all
    /// unknown clients of a proxy.
    #[must_use]
    pub fn network(self) -> Self {
        match self {
            Self::Known(address) => Self::Known(network_of(address)),
            Self::Unknown { proxy } => Self::Unknown { proxy: network_of(proxy) },
        }
    }
}

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        Self::Known(address.to_canonical())
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(address) => address.fmt(f),
            Self::Unknown { .. } => f.write_str("unknown"),
        }
    }
}

/// An IPv4 address, or the /64 of an IPv6 address, which a provider assigns to one client.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// Maximum number of networks of a key.
pub const MAX_NETWORKS: usize = 32;

/// The networks from which a key may be used; an empty list allows any address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Box<[IpNet]>);

/// Why a list of networks is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworksError {
    /// An item is neither a network nor an address.
    #[error("networks[{0}] is not a network such as 10.0.0.0/8 or 2001:db8::/32, or a single address")]
    Form(usize),
    /// There are more than [`MAX_NETWORKS`].
    #[error("networks must not have more than {MAX_NETWORKS} items")]
    TooMany,
}

impl Networks {
    /// The bytes of its heap memory.
    pub fn heap(&self) -> usize {
        allocated(size_of_val(&*self.0))
    }

    /// Parses networks in CIDR notation, or single addresses. IPv4-mapped IPv6 networks become IPv4 networks.
    ///
    /// # Errors
    /// If an item is neither, or there are more than [`MAX_NETWORKS`].
    pub fn parse<'a>(items: impl IntoIterator<Item = &'a str>) -> Result<Self, NetworksError> {
        let mut networks = Vec::new();
        for (at, item) in items.into_iter().enumerate() {
            if at >= MAX_NETWORKS {
                return Err(NetworksError::TooMany);
            }
            let network = network(item).ok_or(NetworksError::Form(at))?;
            if !networks.contains(&network) {
                networks.push(network);
            }
        }
        Ok(Self(networks.into()))
    }

    /// Whether any address is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In CIDR notation.
    pub fn to_texts(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    /// The first of `inner` that is not covered by these networks, alone or together. An empty list stands
    /// for all addresses.
    pub fn first_outside(&self, inner: &Self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        if inner.0.is_empty() {
            return Some("any address".to_owned());
        }
        let covered = IpNet::aggregate(&self.0.to_vec());
        let outside = |network: &&IpNet| !covered.iter().any(|outer| outer.contains(*network));
        inner.0.iter().find(outside).map(ToString::to_string)
    }

    /// Whether a client with this address may use the key. An unknown address is in no network.
    pub fn allow(&self, client: ClientAddress) -> bool {
        let inside = |client: IpAddr| self.0.iter().any(|network| network.contains(&client));
        self.0.is_empty() || client.known().is_some_and(|client| inside(client.to_canonical()))
    }
}

fn network(text: &str) -> Option<IpNet> {
    let address = |text: &str| text.parse().ok().map(|address: IpAddr| IpNet::from(address));
    let network = text.parse().ok().or_else(|| address(text))?;
    Some(canonical(network).trunc())
}

/// Prefix length of IPv4-mapped IPv6 addresses.
const MAPPED_PREFIX: u8 = 96;

fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(six) = network else { return network };
    let mapped = |address: Ipv6Addr| address.to_ipv4_mapped();
    let four = six.prefix_len().checked_sub(MAPPED_PREFIX).zip(mapped(six.addr()));
    four.and_then(|(length, address)| Ipv4Net::new(address, length).ok()).map_or(network, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{ClientAddress, Networks, NetworksError, network_of};

    #[test]
    fn ipv6_addresses_are_counted_by_their_64_bit_prefix() {
        let network = |text: &str| network_of(text.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("2001:db8:1:3::"), "2001:db8:1:3::");
        assert_eq!(network("::ffff:1.2.3.4"), "1.2.3.4");
        assert_eq!(network("1.2.3.4"), "1.2.3.4");
    }

    #[test]
    fn unknown_clients_are_counted_by_their_proxy() {
        let unknown = |proxy: &str| ClientAddress::Unknown { proxy: proxy.parse().unwrap() }.network();
        assert_eq!(unknown("10.0.0.1"), unknown("10.0.0.1"));
        assert_ne!(unknown("10.0.0.1"), unknown("10.0.0.2"));
        assert_ne!(unknown("10.0.0.1"), ClientAddress::from("10.0.0.1".parse::<std::net::IpAddr>().unwrap()));
    }

    fn shown(items: &[&str]) -> Result<Vec<String>, NetworksError> {
        Networks::parse(items.iter().copied()).map(|networks| networks.to_texts())
    }

    #[test]
    fn networks_and_addresses_are_normalized() {
        let given =
            ["10.1.2.3/8", "192.0.2.7", "2001:db8::1/32", "::1", "::ffff:10.9.9.9/104", "::ffff:192.0.2.7"];
        let expected = ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32", "::1/128"].map(str::to_owned);
        assert_eq!(shown(&given), Ok(expected.to_vec()));
        assert_eq!(shown(&[]), Ok(vec![]));
    }

    #[test]
    fn invalid_network_is_reported_with_its_index() {
        for bad in ["", "10.0.0.0/33", "10.0.0.0/-1", "example.com", "10.0.0", "10.0.0.0/8 ", "::1/129"] {
            assert_eq!(shown(&["10.0.0.0/8", bad]), Err(NetworksError::Form(1)), "{bad}");
        }
        assert_eq!(shown(&["10.0.0.0/8"; 33]), Err(NetworksError::TooMany));
    }

    #[test]
    fn networks_outside_others_are_reported() {
        let networks = |items: &[&str]| Networks::parse(items.iter().copied()).unwrap();
        let first = |outer: &[&str], inner: &[&str]| networks(outer).first_outside(&networks(inner));
        assert_eq!(first(&[], &[]), None);
        assert_eq!(first(&[], &["10.0.0.0/8"]), None);
        assert_eq!(first(&["10.0.0.0/8"], &["10.0.0.0/8"]), None);
        assert_eq!(first(&["10.0.0.0/8", "::1"], &["10.1.0.0/16", "10.2.3.4", "::1"]), None);
        assert_eq!(first(&["10.0.0.0/9", "10.128.0.0/9"], &["10.0.0.0/8"]), None, "covered by both");
        assert_eq!(first(&["10.0.0.0/8"], &[]).as_deref(), Some("any address"));
        assert_eq!(first(&["10.0.0.0/8"], &["10.0.0.1", "10.0.0.0/7"]).as_deref(), Some("10.0.0.0/7"));
        assert_eq!(first(&["10.0.0.0/8"], &["::/0"]).as_deref(), Some("::/0"));
        assert_eq!(first(&["::/0"], &["10.0.0.1"]).as_deref(), Some("10.0.0.1/32"));
    }

    #[test]
    fn key_is_usable_from_its_networks_only() {
        let admits = |networks: &[&str], client: &str| {
            Networks::parse(networks.iter().copied()).unwrap().allow(client.parse::<IpAddr>().unwrap().into())
        };
        assert!(admits(&[], "192.0.2.1") && admits(&[], "2001:db8::1"));
        assert!(admits(&["10.0.0.0/8"], "10.255.0.1") && admits(&["10.0.0.0/8"], "::ffff:10.0.0.1"));
        assert!(admits(&["10.0.0.0/8", "2001:db8::/32"], "2001:db8:9::1"));
        for stranger in ["11.0.0.1", "9.255.255.255", "::1", "::10.0.0.1"] {
            assert!(!admits(&["10.0.0.0/8"], stranger), "{stranger}");
        }
        assert!(!admits(&["0.0.0.0/0"], "::1"));
    }

    #[test]
    fn unknown_client_is_in_no_network() {
        let unknown = ClientAddress::Unknown { proxy: "127.0.0.1".parse().unwrap() };
        for networks in [&["127.0.0.1/32"][..], &["0.0.0.0/0", "::/0"]] {
            assert!(!Networks::parse(networks.iter().copied()).unwrap().allow(unknown));
        }
        assert!(Networks::default().allow(unknown), "a key without networks may be used from anywhere");
    }
}
