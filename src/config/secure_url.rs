//! The URL of a trusted server: `https`, or `http` on loopback.

use std::fmt;

use url::{Host, Url};

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
    use super::SecureUrl;

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
