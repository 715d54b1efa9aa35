//! The URL of a server that is trusted for what it says: `https`, or `http` on this machine.

use std::fmt;

use url::{Host, Url};

/// An `https` URL, or an `http` one of a loopback address, without user and fragment; kept as it was written, since
/// issuers are compared to the letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureUrl(String);

impl SecureUrl {
    /// Reads `https://login.example.com/realms/acme`.
    ///
    /// # Errors
    /// Says what the text is not.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or("is not a URL such as https://login.example.com")?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err("holds a user name, a password or a fragment, which belong elsewhere".to_owned());
        }
        if url.scheme() == "http" && !is_loopback(&url) {
            return Err("is not https: whoever is on the way could answer in its place".to_owned());
        }
        Ok(Self(text.to_owned()))
    }

    /// As [`parse`](Self::parse), of an issuer, which has no query (`OpenID` Connect Discovery 1.0, section 4).
    ///
    /// # Errors
    /// Says what the text is not.
    pub fn parse_issuer(text: &str) -> Result<Self, String> {
        let url = Self::parse(text)?;
        if text.contains('?') { Err("has a query, which an issuer has not".to_owned()) } else { Ok(url) }
    }

    /// The URL, to the letter.
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
    fn https_is_required_but_on_this_machine() {
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
