//! Origins of web pages that may reach the gateway.

use std::fmt;

use url::Url;

/// An allowed origin, compared with the `Origin` header of browsers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// Exactly this one.
    Exact(String),
    /// This scheme and host, with any port; written `http://localhost:*`.
    AnyPort(String),
}

impl AllowedOrigin {
    /// Parses `https://app.example.com`, `http://localhost:*` or `vscode-webview://id`.
    ///
    /// # Errors
    /// Why the text is not an origin.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "*" || text == "null" {
            return Err("would allow every web page; list the origins".to_owned());
        }
        let any_port = text.strip_suffix(":*");
        let origin = Url::parse(any_port.unwrap_or(text)).ok().and_then(|url| origin_of(&url));
        match (origin, any_port) {
            (None, _) => {
                Err("is not an origin such as https://app.example.com or http://localhost:*".to_owned())
            }
            (Some(origin), None) => Ok(Self::Exact(origin)),
            (Some(origin), Some(_)) => Ok(Self::AnyPort(origin)),
        }
    }

    /// Whether an `Origin` header of this value is allowed.
    pub fn allows(&self, origin: &str) -> bool {
        match self {
            Self::Exact(allowed) => allowed.eq_ignore_ascii_case(origin),
            Self::AnyPort(allowed) => origin.split_at_checked(allowed.len()).is_some_and(|(start, rest)| {
                start.eq_ignore_ascii_case(allowed) && (rest.is_empty() || is_port(rest))
            }),
        }
    }
}

impl fmt::Display for AllowedOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(origin) => f.write_str(origin),
            Self::AnyPort(origin) => write!(f, "{origin}:*"),
        }
    }
}

/// The origins of this machine with any port while listening on loopback, and that of the public URL.
pub(super) fn default_origins(loopback: bool, public_origin: &str) -> Vec<AllowedOrigin> {
    let mut origins = Vec::new();
    if loopback {
        let hosts = ["localhost", "127.0.0.1", "[::1]"];
        let any_port = |scheme| hosts.map(|host| AllowedOrigin::AnyPort(format!("{scheme}://{host}")));
        origins.extend(["http", "https"].into_iter().flat_map(any_port));
    }
    if !origins.iter().any(|origin| origin.allows(public_origin)) {
        origins.push(AllowedOrigin::Exact(public_origin.to_owned()));
    }
    origins
}

/// Scheme, host and port in the format of browsers; `None` for a URL with more than these.
fn origin_of(url: &Url) -> Option<String> {
    let bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    if !bare || url.host_str().is_none_or(str::is_empty) || has_credentials(url) || has_wildcard(url) {
        return None;
    }
    let origin = url.origin();
    if origin.is_tuple() {
        Some(origin.ascii_serialization())
    } else {
        Some(url.as_str().trim_end_matches('/').to_owned())
    }
}

fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

fn has_wildcard(url: &Url) -> bool {
    url.host_str().is_some_and(|host| host.contains('*'))
}

fn is_port(rest: &str) -> bool {
    rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok() && !port.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        AllowedOrigin::parse(text).map(|origin| origin.to_string())
    }

    #[test]
    fn origin_is_normalized_as_browsers_do() {
        let written = [
            "https://App.Example.com",
            "https://app.example.com/",
            "https://app.example.com:443",
            "http://localhost:6274",
            "http://[::1]:*",
            "vscode-webview://1a2b",
        ];
        let kept = [
            "https://app.example.com",
            "https://app.example.com",
            "https://app.example.com",
            "http://localhost:6274",
            "http://[::1]:*",
            "vscode-webview://1a2b",
        ];
        assert_eq!(written.map(shown), kept.map(|origin| Ok(origin.to_owned())));
    }

    #[test]
    fn invalid_origin_is_refused() {
        let wrong = [
            "",
            "localhost",
            "localhost:8080",
            "https://",
            "https://a.example/path",
            "https://a.example?q",
            "https://me:pw@a.example",
            "https://*.example.com",
            "file:///etc/passwd",
            "data:,x",
        ];
        for text in wrong {
            let expected = "is not an origin such as https://app.example.com or http://localhost:*";
            assert_eq!(shown(text), Err(expected.to_owned()), "{text}");
        }
        for text in ["*", "null"] {
            let expected = "would allow every web page; list the origins";
            assert_eq!(shown(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn any_port_matches_ports_only() {
        let allowed = AllowedOrigin::parse("http://localhost:*").unwrap();
        let passing = ["http://localhost", "http://localhost:1", "HTTP://LOCALHOST:65535"];
        assert!(passing.iter().all(|origin| allowed.allows(origin)));
        let stopped = [
            "",
            "http://localhos",
            "http://localhost:",
            "http://localhost:65536",
            "http://localhost:+1",
            "http://localhost.evil.example",
            "http://localhost:1.evil.example",
            "https://localhost:1",
            "null",
        ];
        assert_eq!(stopped.iter().find(|origin| allowed.allows(origin)), None);
    }

    #[test]
    fn exact_origin_allows_only_itself() {
        let allowed = AllowedOrigin::parse("https://app.example.com").unwrap();
        assert!(allowed.allows("https://app.example.com"));
        let stopped =
            ["https://app.example.com:8443", "http://app.example.com", "https://app.example.com.evil"];
        assert_eq!(stopped.iter().find(|origin| allowed.allows(origin)), None);
    }

    #[test]
    fn local_origins_are_allowed_only_while_listening_on_loopback() {
        let public = "https://mcp.example.com";
        let shown =
            |loopback| default_origins(loopback, public).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(false), ["https://mcp.example.com"]);
        assert_eq!(
            shown(true),
            [
                "http://localhost:*",
                "http://127.0.0.1:*",
                "http://[::1]:*",
                "https://localhost:*",
                "https://127.0.0.1:*",
                "https://[::1]:*",
                "https://mcp.example.com",
            ]
        );
    }
}
