//! URLs in settings: the one that clients use, and those of trusted servers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use url::{Host, Url};

/// An `http` or `https` URL without credentials, query, fragment or trailing slash, so that paths can be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    text: String,
    origin: String,
}

impl PublicUrl {
    /// Parses `https://mcp.example.com` or `https://example.com/hub`.
    ///
    /// # Errors
    /// Why the text is not a public URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or("is not a URL such as https://mcp.example.com")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("contains a user name or password; remove it".to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("has a query or fragment; expected scheme, host, port and path only".to_owned());
        }
        let text = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { text, origin: url.origin().ascii_serialization() })
    }

    /// `http://` and the address, or `https://` with TLS.
    pub fn of(address: SocketAddr, tls: bool) -> Self {
        let (scheme, default_port) = if tls { ("https", 443) } else { ("http", 80) };
        let host: Host = match address.ip() {
            IpAddr::V4(ip) => Host::Ipv4(ip),
            IpAddr::V6(ip) => Host::Ipv6(ip),
        };
        let text = match address.port() {
            port if port == default_port => format!("{scheme}://{host}"),
            port => format!("{scheme}://{host}:{port}"),
        };
        Self { origin: text.clone(), text }
    }

    /// The URL, without a trailing slash.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Scheme, host and port, as in the `Origin` header of browsers.
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An `https` URL, or an `http` URL of a loopback address, without user and fragment. Not normalized, since issuers are
/// compared as strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureUrl(String);

impl SecureUrl {
    /// Parses `https://login.example.com/realms/acme`.
    ///
    /// # Errors
    /// Why the text is not such a URL.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or("is not a URL such as https://login.example.com")?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err("contains a user name, a password or a fragment; remove it".to_owned());
        }
        if url.scheme() == "http" && !is_loopback(&url) {
            return Err("is not https; http is accepted on loopback only".to_owned());
        }
        Ok(Self(text.to_owned()))
    }

    /// As [`parse`](Self::parse), for an issuer, which has no query (`OpenID` Connect Discovery 1.0, section 4).
    ///
    /// # Errors
    /// Why the text is not such a URL.
    pub fn parse_issuer(text: &str) -> Result<Self, String> {
        let url = Self::parse(text)?;
        if text.contains('?') { Err("has a query; an issuer has none".to_owned()) } else { Ok(url) }
    }

    /// The URL, as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecureUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{SecureUrl, *};

    #[test]
    fn public_url_has_no_trailing_slash() {
        let written = [
            "https://mcp.example.com",
            "https://MCP.example.com:443/",
            "http://example.com:8080/hub/",
            "http://[::1]:8094",
        ];
        let kept =
            written.map(|text| PublicUrl::parse(text).map(|url| (url.to_string(), url.origin().to_owned())));
        let expected = [
            ("https://mcp.example.com", "https://mcp.example.com"),
            ("https://mcp.example.com", "https://mcp.example.com"),
            ("http://example.com:8080/hub", "http://example.com:8080"),
            ("http://[::1]:8094", "http://[::1]:8094"),
        ];
        assert_eq!(kept, expected.map(|(text, origin)| Ok((text.to_owned(), origin.to_owned()))));
    }

    #[test]
    fn url_of_an_address_equals_the_parsed_one() {
        for address in ["127.0.0.1:8094", "0.0.0.0:80", "0.0.0.0:443", "[::1]:8094", "[::ffff:127.0.0.1]:1"] {
            for (scheme, tls) in [("http", false), ("https", true)] {
                let url = PublicUrl::of(address.parse().unwrap(), tls);
                assert_eq!(PublicUrl::parse(&format!("{scheme}://{address}")), Ok(url));
            }
        }
        let local = PublicUrl::of("[fe80::1%2]:8094".parse().unwrap(), false);
        assert_eq!(local.as_str(), "http://[fe80::1]:8094");
    }

    #[test]
    fn invalid_public_url_is_refused() {
        for text in ["", "mcp.example.com", "ftp://example.com", "https://", "http://a.example:port"] {
            let expected = "is not a URL such as https://mcp.example.com".to_owned();
            assert_eq!(PublicUrl::parse(text), Err(expected), "{text}");
        }
        for text in ["https://a.example?q", "https://a.example#f"] {
            let expected = "has a query or fragment; expected scheme, host, port and path only".to_owned();
            assert_eq!(PublicUrl::parse(text), Err(expected), "{text}");
        }
        let expected = "contains a user name or password; remove it".to_owned();
        assert_eq!(PublicUrl::parse("https://me:pw@a.example"), Err(expected));
    }

    #[test]
    fn https_is_required_except_on_loopback() {
        for good in [
            "https://login.example.com/",
            "https://login.example.com/realms/a?b=c",
            "http://localhost:1/x",
            "http://127.0.0.9",
            "http://[::1]:80/",
        ] {
            assert_eq!(SecureUrl::parse(good).map(|url| url.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "http://login.example.com",
            "http://localhost.example.com",
            "http://10.0.0.1",
            "ftp://a",
            "login.example.com",
            "",
            "https://me:pw@a.example",
            "https://a.example/#f",
        ] {
            assert!(SecureUrl::parse(bad).is_err(), "{bad}");
        }
        assert!(SecureUrl::parse_issuer("https://login.example.com/").is_ok());
        assert!(SecureUrl::parse_issuer("https://login.example.com/?tenant=a").is_err());
    }
}
