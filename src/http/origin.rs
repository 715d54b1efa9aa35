//! `Host` and `Origin`: keeps web pages from reaching the gateway by way of their reader's browser.
//!
//! Against DNS rebinding (a name of the attacker's that resolves to this machine) the host is checked; against other
//! pages the origin is. Programs send no `Origin` and pass.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, HOST, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Uri};

use crate::config::AllowedOrigin;
use crate::model::fault::Fault;

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, X-Agent-API-Key, Content-Type, Accept, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, \
     Mcp-Name, Last-Event-ID, X-Request-Id",
);
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Mcp-Session-Id, WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy, X-Request-Id, \
     Waggle-Key-Expires",
);

/// Which hosts and origins are allowed.
#[derive(Debug, Clone)]
pub struct OriginRules {
    /// As they stand in a `Host` header, without a port; `None`: any.
    pub hosts: Option<Vec<String>>,
    /// The origins of pages that may call.
    pub origins: Vec<AllowedOrigin>,
}

impl OriginRules {
    /// Checks a request; answers its origin, if it has one.
    ///
    /// # Errors
    /// [`Fault::ForbiddenOrigin`]; [`Fault::InvalidRequest`] for two hosts.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<Option<HeaderValue>, Fault> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next();
        if hosts.next().is_some() {
            return Err(Fault::InvalidRequest("a request has one Host".into()));
        }
        if !self.allows_host(uri, host) {
            return Err(Fault::ForbiddenOrigin("this Host is not allowed"));
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(None) };
        let allowed = |text: &str| self.origins.iter().any(|rule| rule.allows(text));
        if origins.next().is_none() && origin.to_str().is_ok_and(allowed) {
            Ok(Some(origin.clone()))
        } else {
            Err(Fault::ForbiddenOrigin("this Origin is not allowed"))
        }
    }

    fn allows_host(&self, uri: &Uri, host: Option<&HeaderValue>) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        // Where the target names the host, as HTTP/2 does, the header says nothing (RFC 9112, section 3.2.2).
        let named = uri.authority().map(http::uri::Authority::as_str);
        let named = named.or_else(|| host.and_then(|host| host.to_str().ok()));
        named
            .map(without_port)
            .is_some_and(|host| hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host)))
    }
}

fn without_port(host: &str) -> &str {
    let port = host.rfind(':').filter(|colon| host[colon + 1..].bytes().all(|b| b.is_ascii_digit()));
    port.map_or(host, |colon| &host[..colon])
}

/// Lets the page of an allowed origin read the answer.
pub fn allow(origin: HeaderValue, headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(VARY, HeaderValue::from_static("Origin"));
}

/// What a preflight asks for (Fetch standard, section 3.3).
pub fn allow_preflight(headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, origin: Option<&str>) -> bool {
        let rules = OriginRules {
            hosts: Some(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec()),
            origins: vec![AllowedOrigin::parse("http://localhost:*").unwrap()],
        };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        rules.check(&Uri::from_static("/"), &headers).is_ok()
    }

    #[test]
    fn the_target_names_the_host_before_the_header_does_and_two_headers_are_refused() {
        let rules = OriginRules { hosts: Some(vec!["localhost".to_owned()]), origins: Vec::new() };
        let check = |uri: &'static str, hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, HeaderValue::from_static(host));
            }
            rules.check(&Uri::from_static(uri), &headers).map_err(|fault| fault.name())
        };
        assert_eq!(check("http://localhost/a/mcp", &["evil.example"]), Ok(None));
        assert_eq!(check("http://localhost:80/a/mcp", &[]), Ok(None));
        for target in ["http://evil.example/a/mcp", "http://localhost@evil.example/a/mcp"] {
            assert_eq!(check(target, &["localhost"]), Err("forbidden_origin"), "{target}");
        }
        assert_eq!(check("/a/mcp", &["localhost", "localhost"]), Err("invalid_request"));
        assert_eq!(check("/a/mcp", &[]), Err("forbidden_origin"));
    }

    #[test]
    fn only_allowed_hosts_and_origins_pass() {
        for host in ["localhost", "LOCALHOST:8094", "127.0.0.1:1", "[::1]", "[::1]:8094"] {
            assert!(check(host, None), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8094", "", "[::2]:1"] {
            assert!(!check(host, None), "{host}");
        }
        assert!(check("localhost", Some("http://localhost:3000")));
        for origin in ["http://evil.example", "null", "https://localhost", "http://localhost.evil.example"] {
            assert!(!check("localhost", Some(origin)), "{origin}");
        }
    }
}
