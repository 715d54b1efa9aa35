//! The URL that clients use.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use url::{Host, Url};

/// An `http` or `https` URL without credentials, query, fragment and trailing slash, so that paths can be appended.
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
        let (scheme, usual) = if tls { ("https", 443) } else { ("http", 80) };
        let host: Host = match address.ip() {
            IpAddr::V4(ip) => Host::Ipv4(ip),
            IpAddr::V6(ip) => Host::Ipv6(ip),
        };
        let text = match address.port() {
            port if port == usual => format!("{scheme}://{host}"),
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
