//! The address of a client.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

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

#[cfg(test)]
mod tests {
    use super::{ClientAddress, network_of};

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
}
