//! Establishes the address of a client: the peer of the connection, or what trusted proxies report in one header.
//!
//! The header is read from its end, entry by entry, as bytes: each proxy appends the address of its own peer, so an
//! entry is trusted only if the address after it is that of a trusted proxy. An entry that is no address makes the
//! client [unknown](ClientAddress::Unknown); it never makes an earlier hop the client.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::config::ForwardedHeader;
use crate::model::client_address::ClientAddress;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");

/// The trusted proxies, and the header in which they report clients.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    header: ForwardedHeader,
}

impl TrustedProxies {
    /// Trusts peers in these networks to report clients in `header`.
    pub fn new(networks: Vec<IpNet>, header: ForwardedHeader) -> Self {
        Self { networks, header }
    }

    /// The address of the client of a request from `peer`.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> ClientAddress {
        let mut client = peer.to_canonical();
        if self.networks.is_empty() {
            return ClientAddress::Known(client);
        }
        let quoted = self.header == ForwardedHeader::Forwarded;
        let name = if quoted { &FORWARDED } else { &X_FORWARDED_FOR };
        let lines = headers.get_all(name).iter().rev();
        let mut entries =
            lines.flat_map(|line| FromEnd { rest: Some(line.as_bytes()), separator: b',', quoted });
        while self.trusts(client)
            && let Some(entry) = entries.next()
        {
            match if quoted { forwarded_for(entry) } else { address(entry) } {
                Some(address) => client = address,
                None => return ClientAddress::Unknown { proxy: client },
            }
        }
        ClientAddress::Known(client)
    }

    /// Whether an address is that of a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }
}

/// The parts of a list between separators, the last one first.
struct FromEnd<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
    /// Whether separators inside quoted strings (RFC 9110, section 5.6.4) do not separate.
    quoted: bool,
}

impl<'a> Iterator for FromEnd<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let mut inside = false;
        for at in (0..rest.len()).rev() {
            let byte = rest[at];
            if self.quoted && byte == b'"' {
                // A quote with an odd number of backslashes before it belongs to the string.
                let backslashes = rest[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
                inside ^= backslashes % 2 == 0;
            } else if byte == self.separator && !inside {
                self.rest = Some(&rest[..at]);
                return Some(&rest[at + 1..]);
            }
        }
        Some(rest)
    }
}

/// The address of the `for` parameter of an element of `Forwarded` (RFC 7239, section 4); `None` without exactly one.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let pairs = FromEnd { rest: Some(element), separator: b';', quoted: true };
    let mut nodes = pairs.filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        name.eq_ignore_ascii_case(b"for").then_some(value)
    });
    let (node, None) = (nodes.next()?, nodes.next()) else { return None };
    let unquoted = node.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    address(unquoted.unwrap_or(node))
}

/// An address as proxies write it: alone, or with a port; an IPv6 address may be in brackets.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let entry = str::from_utf8(entry.trim_ascii()).ok()?;
    let bare = if let Some(rest) = entry.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(address)?
    } else {
        match entry.split_once(':') {
            Some((address, port)) if address.contains('.') && is_port(port) => address,
            _ => entry,
        }
    };
    let address: IpAddr = bare.parse().ok()?;
    Some(address.to_canonical())
}

/// A port number, or an obfuscated one (RFC 7239, section 6.3).
fn is_port(text: &str) -> bool {
    let obfuscated = text.strip_prefix('_');
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match obfuscated {
        Some(rest) => !rest.is_empty() && rest.bytes().all(allowed),
        None => (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http::{HeaderMap, HeaderValue};
    use proptest::prelude::*;

    use super::{ForwardedHeader, TrustedProxies};
    use crate::model::client_address::ClientAddress;

    const PROXIES: [&str; 2] = ["10.0.0.0/8", "fd00::/8"];
    const PEER: &str = "::ffff:10.0.0.1";

    fn proxies(header: ForwardedHeader) -> TrustedProxies {
        TrustedProxies::new(PROXIES.map(|network| network.parse().unwrap()).to_vec(), header)
    }

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, line) in lines {
            headers.append(*name, HeaderValue::from_bytes(line).unwrap());
        }
        headers
    }

    /// The client as it is shown, with the proxy behind an unknown one.
    fn client(header: ForwardedHeader, peer: &str, lines: &[(&'static str, &[u8])]) -> String {
        match proxies(header).client(peer.parse().unwrap(), &headers(lines)) {
            ClientAddress::Known(address) => address.to_string(),
            ClientAddress::Unknown { proxy } => format!("unknown of {proxy}"),
        }
    }

    fn listed(lines: &[&[u8]]) -> String {
        let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
        client(ForwardedHeader::XForwardedFor, PEER, &lines)
    }

    fn forwarded(lines: &[&[u8]]) -> String {
        let lines: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
        client(ForwardedHeader::Forwarded, PEER, &lines)
    }

    #[test]
    fn untrusted_peers_are_not_believed() {
        let lines = [("x-forwarded-for", &b"1.2.3.4"[..])];
        assert_eq!(client(ForwardedHeader::XForwardedFor, "192.0.2.1", &lines), "192.0.2.1");
        let none = TrustedProxies::new(Vec::new(), ForwardedHeader::XForwardedFor);
        let peer: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(none.client(peer, &headers(&lines)), ClientAddress::Known(peer));
    }

    #[test]
    fn the_list_is_read_from_its_end_as_far_as_it_is_trusted() {
        for (lines, expected) in [
            (&[&b"1.2.3.4"[..]][..], "1.2.3.4"),
            (&[b"6.6.6.6, 1.2.3.4"], "1.2.3.4"),
            (&[b"6.6.6.6, 1.2.3.4, 10.0.0.9"], "1.2.3.4"),
            (&[b"6.6.6.6", b"1.2.3.4,10.0.0.9"], "1.2.3.4"),
            (&[b"1.2.3.4:5678"], "1.2.3.4"),
            (&[b"[2001:db8::1]:5678 , fd00::1"], "2001:db8::1"),
            (&[b"[2001:db8::1]"], "2001:db8::1"),
            (&[b"2001:db8::1"], "2001:db8::1"),
            (&[b"::ffff:1.2.3.4"], "1.2.3.4"),
            (&[b"10.0.0.7, 10.0.0.8"], "10.0.0.7"),
            (&[b"\xff,203.0.113.5"], "203.0.113.5"),
            (&[], "10.0.0.1"),
        ] {
            assert_eq!(listed(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn an_unreadable_entry_makes_the_client_unknown() {
        for (lines, expected) in [
            (&[&b"127.0.0.1, \xff"[..]][..], "unknown of 10.0.0.1"),
            (&[b"6.6.6.6, unknown, 10.0.0.9"], "unknown of 10.0.0.9"),
            (&[b"6.6.6.6, , 10.0.0.9"], "unknown of 10.0.0.9"),
            (&[b"6.6.6.6", b"\xff", b"10.0.0.9"], "unknown of 10.0.0.9"),
            (&[b""], "unknown of 10.0.0.1"),
            (&[b"6.6.6.6,"], "unknown of 10.0.0.1"),
            (&[b"1.2.3.4:"], "unknown of 10.0.0.1"),
            (&[b"1.2.3.4 5.6.7.8"], "unknown of 10.0.0.1"),
            (&[b"[1.2.3.4"], "unknown of 10.0.0.1"),
            (&[b"[::1]x"], "unknown of 10.0.0.1"),
            (&[b"fe80::1%eth0"], "unknown of 10.0.0.1"),
        ] {
            assert_eq!(listed(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn forwarded_is_read_as_rfc_7239_writes_it() {
        for (lines, expected) in [
            (&[&b"for=192.0.2.60;proto=http;by=203.0.113.43"[..]][..], "192.0.2.60"),
            (&[b"For=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17"),
            (&[b"for=6.6.6.6, FOR=\"1.2.3.4:_port\" ; host=\"a,b;for=9.9.9.9\""], "1.2.3.4"),
            (&[b"for=1.2.3.4, for=10.0.0.9;by=x"], "1.2.3.4"),
            (&[b"for=1.2.3.4", b"for=10.0.0.9"], "1.2.3.4"),
            (&[b"for=\", for=1.2.3.4"], "1.2.3.4"),
            (&[b"for=6.6.6.6;host=\"\\\", for=1.2.3.4;host=\"a\\\",for=7.7.7.7\\\\\""], "1.2.3.4"),
            (&[b"\xff, for=1.2.3.4"], "1.2.3.4"),
            (&[b"for=1.2.3.4, \xff"], "unknown of 10.0.0.1"),
            (&[b"for=unknown"], "unknown of 10.0.0.1"),
            (&[b"for=_hidden"], "unknown of 10.0.0.1"),
            (&[b"proto=https"], "unknown of 10.0.0.1"),
            (&[b"for=1.2.3.4;for=127.0.0.1"], "unknown of 10.0.0.1"),
            (&[b"for=\"1.2.3.4"], "unknown of 10.0.0.1"),
            (&[], "10.0.0.1"),
        ] {
            assert_eq!(forwarded(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn only_the_configured_header_is_read() {
        let both = [("x-forwarded-for", &b"1.1.1.1"[..]), ("forwarded", b"for=2.2.2.2")];
        assert_eq!(client(ForwardedHeader::XForwardedFor, PEER, &both), "1.1.1.1");
        assert_eq!(client(ForwardedHeader::Forwarded, PEER, &both), "2.2.2.2");
        assert_eq!(client(ForwardedHeader::Forwarded, PEER, &both[..1]), "10.0.0.1");
    }

    /// What a client may send: any bytes that are valid in a header value.
    fn sent() -> impl Strategy<Value = Vec<u8>> {
        let odd =
            prop::sample::select(vec![b',', b'"', b'\\', b';', b'=', b' ', 0xff, b'[', b':', b'1', b'.']);
        prop::collection::vec(prop_oneof![odd, 0x20_u8..0x7f, 0x80_u8..=0xff], 0..40)
    }

    fn element() -> impl Strategy<Value = (String, IpAddr)> {
        let hosts =
            prop::sample::select(vec!["", ";host=\"a,b\"", ";host=\"\\\"\"", ";proto=https", ";by=_x"]);
        (any::<IpAddr>(), hosts).prop_map(|(address, host)| {
            let node = match address {
                IpAddr::V4(address) => address.to_string(),
                IpAddr::V6(address) => format!("\"[{address}]:1\""),
            };
            (format!("for={node}{host}"), address.to_canonical())
        })
    }

    proptest! {
        #[test]
        fn what_a_client_sends_never_changes_what_the_proxy_appends(
            sent in sent(),
            address: IpAddr,
            (element, node) in element(),
            one_line: bool,
        ) {
            let appended = [
                (ForwardedHeader::XForwardedFor, "x-forwarded-for", address.to_string(), address.to_canonical()),
                (ForwardedHeader::Forwarded, "forwarded", element, node),
            ];
            for (header, name, appended, expected) in appended {
                let proxies = proxies(header);
                prop_assume!(!proxies.trusts(expected));
                let joined = [&sent[..], b", ", appended.as_bytes()].concat();
                let lines: &[(&str, &[u8])] = if one_line {
                    &[(name, &joined)]
                } else {
                    &[(name, &sent), (name, appended.as_bytes())]
                };
                let client = proxies.client(PEER.parse().unwrap(), &headers(lines));
                prop_assert_eq!(client, ClientAddress::Known(expected));
            }
        }

        #[test]
        fn a_header_that_is_present_never_makes_its_proxy_the_client(sent in sent()) {
            for (header, name) in
                [(ForwardedHeader::XForwardedFor, "x-forwarded-for"), (ForwardedHeader::Forwarded, "forwarded")]
            {
                let peer: IpAddr = "10.255.255.254".parse().unwrap();
                let client = proxies(header).client(peer, &headers(&[(name, &sent)]));
                prop_assert_ne!(client, ClientAddress::Known(peer));
            }
        }
    }
}
