//! Who is at the other end: the address of the connection, or what proxies that are trusted say of it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies whose `X-Forwarded-For` is believed.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Believes whoever connects from these networks.
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// The address of a client. Each proxy adds the address that it was connected from at the end, so the list is read
    /// from there, for as long as whoever wrote the entry is trusted: what stands before is anybody's word.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if self.0.is_empty() {
            return client;
        }
        let lines = headers.get_all(&X_FORWARDED_FOR).iter().rev();
        let mut entries = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
        while self.trusts(client)
            && let Some(before) = entries.next().and_then(address)
        {
            client = before;
        }
        client
    }

    /// Whether an address is that of a proxy that is believed.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// The addresses that are one client's: one of version 4, or what one network of version 6 hands out, a `/64`.
pub fn of_one_client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// An address as proxies write it: some add the port.
fn address(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim();
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(entry);
    let address = bare.parse().or_else(|_| entry.parse().map(|address: SocketAddr| address.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http::{HeaderMap, HeaderValue};

    use super::{TrustedProxies, of_one_client};

    fn client(trusted: &[&str], peer: &str, lines: &[&str]) -> String {
        let trusted = TrustedProxies::new(trusted.iter().map(|network| network.parse().unwrap()).collect());
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", HeaderValue::from_str(line).unwrap());
        }
        trusted.client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn nobody_is_believed_who_is_not_trusted() {
        assert_eq!(client(&[], "10.0.0.1", &["1.2.3.4"]), "10.0.0.1");
        assert_eq!(client(&["10.0.0.0/8"], "192.0.2.1", &["1.2.3.4"]), "192.0.2.1");
    }

    #[test]
    fn the_list_is_read_from_its_end_as_far_as_it_is_trusted() {
        let trusted = &["10.0.0.0/8", "fd00::/8"];
        for (lines, expected) in [
            (&["1.2.3.4"][..], "1.2.3.4"),
            (&["6.6.6.6, 1.2.3.4"], "1.2.3.4"),
            (&["6.6.6.6, 1.2.3.4, 10.0.0.9"], "1.2.3.4"),
            (&["6.6.6.6", "1.2.3.4,10.0.0.9"], "1.2.3.4"),
            (&["1.2.3.4:5678"], "1.2.3.4"),
            (&["[2001:db8::1]:5678 , fd00::1"], "2001:db8::1"),
            (&["[2001:db8::1]"], "2001:db8::1"),
            (&["::ffff:1.2.3.4"], "1.2.3.4"),
            (&["10.0.0.7, 10.0.0.8"], "10.0.0.7"),
            (&["6.6.6.6, unknown, 10.0.0.9"], "10.0.0.9"),
            (&["6.6.6.6, , 10.0.0.9"], "10.0.0.9"),
            (&[""], "10.0.0.1"),
            (&[], "10.0.0.1"),
        ] {
            assert_eq!(client(trusted, "::ffff:10.0.0.1", lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_network_of_version_6_is_one_client() {
        let one = |text: &str| of_one_client(text.parse::<IpAddr>().unwrap()).to_string();
        assert_eq!(one("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(one("2001:db8:1:3::"), "2001:db8:1:3::");
        assert_eq!(one("::ffff:1.2.3.4"), "1.2.3.4");
        assert_eq!(one("1.2.3.4"), "1.2.3.4");
    }
}
