//! `Host` and `Origin` checks, and CORS: protection from cross-origin requests and DNS rebinding.
//!
//! The host check defends against DNS rebinding (an attacker's name that resolves to this machine), the origin check
//! against other web pages. Programs send no `Origin` and pass.

use std::net::IpAddr;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, HOST, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Uri, Version};

use crate::config::{AllowedOrigin, Server};
use crate::model::fault::Fault;

/// A foreign `Host` without a valid credential.
pub const FOREIGN_HOST: Fault = Fault::ForbiddenOrigin("this Host is not allowed");

/// The CORS policy of a surface: what a page of an allowed origin may send and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cors {
    methods: &'static str,
    request_headers: &'static str,
    exposed: &'static str,
}

/// The policy of the MCP endpoints.
pub const MCP_CORS: Cors = Cors {
    methods: "GET, POST, DELETE",
    request_headers: "Authorization, X-Agent-API-Key, Content-Type, Accept, MCP-Protocol-Version, Mcp-Session-Id, \
                      Mcp-Method, Mcp-Name, Last-Event-ID, X-Request-Id, traceparent, tracestate, baggage",
    exposed: "Mcp-Session-Id, WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy, X-Request-Id, \
              Waggle-Key-Expires",
};

/// The policy of the administration API.
pub const ADMIN_CORS: Cors = Cors {
    methods: "GET, POST, PUT, PATCH, DELETE",
    request_headers: "Authorization, X-Agent-API-Key, Content-Type, Accept, If-Match, If-None-Match, X-Request-Id, \
                      traceparent, tracestate, baggage",
    exposed: "ETag, WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy, X-Request-Id, Waggle-Key-Expires",
};

/// The checked origin and host of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSource {
    /// The allowed origin of the page that sent the request; `None` for programs.
    pub origin: Option<HeaderValue>,
    /// The `Host` is not allowed: the request passes only with a valid credential, which no web page has.
    pub foreign_host: bool,
}

/// The allowed hosts and origins.
#[derive(Debug, Clone)]
pub struct OriginRules {
    /// Hosts as in the `Host` header, without a port; `None`: any.
    pub hosts: Option<Vec<String>>,
    /// The allowed origins.
    pub origins: Vec<AllowedOrigin>,
}

impl OriginRules {
    /// The rules of the settings.
    pub fn new(server: &Server) -> Self {
        let hosts = server.allowed_hosts.as_ref();
        Self {
            hosts: hosts.map(|hosts| hosts.iter().map(ToString::to_string).collect()),
            origins: server.allowed_origins.clone(),
        }
    }

    /// Checks the `Origin` of a request, and whether its `Host` is allowed.
    ///
    /// # Errors
    /// [`Fault::ForbiddenOrigin`] for a foreign origin; [`Fault::InvalidRequest`] for two hosts, or none in HTTP/1.1 (RFC 9112,
    /// section 3.2).
    pub fn check(&self, Parts { uri, version, headers, .. }: &Parts) -> Result<RequestSource, Fault> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next();
        if hosts.next().is_some() || host.is_none() && *version == Version::HTTP_11 {
            return Err(Fault::InvalidRequest("a request has one Host".into()));
        }
        let foreign_host = !self.allows_host(uri, host);
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return Ok(RequestSource { origin: None, foreign_host });
        };
        let allowed = |text: &str| self.origins.iter().any(|rule| rule.allows(text));
        if origins.next().is_none() && origin.to_str().is_ok_and(allowed) {
            Ok(RequestSource { origin: Some(origin.clone()), foreign_host })
        } else {
            Err(Fault::ForbiddenOrigin("this Origin is not allowed"))
        }
    }

    fn allows_host(&self, uri: &Uri, host: Option<&HeaderValue>) -> bool {
        self.hosts.is_none() || host_of(uri, host).is_some_and(|host| self.names(host))
    }

    fn names(&self, host: &str) -> bool {
        self.hosts.iter().flatten().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }

    /// Whether the host of a request is an IP literal, `localhost` or one of the allowed hosts. A name of DNS
    /// rebinding is none of them, even if any host is allowed.
    pub fn has_literal_or_allowed_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        host_of(uri, headers.get(HOST)).is_some_and(|host| {
            let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            literal.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost") || self.names(host)
        })
    }
}

/// The host of a request, without its port. A host in the request target, as in HTTP/2, takes precedence over the header
/// (RFC 9112, section 3.2.2).
fn host_of<'a>(uri: &'a Uri, header: Option<&'a HeaderValue>) -> Option<&'a str> {
    let named = uri.authority().map(http::uri::Authority::as_str);
    named.or_else(|| header.and_then(|host| host.to_str().ok())).map(without_port)
}

fn without_port(host: &str) -> &str {
    let port = host.rfind(':').filter(|colon| host[colon + 1..].bytes().all(|b| b.is_ascii_digit()));
    port.map_or(host, |colon| &host[..colon])
}

/// Adds the CORS headers with which a page of an allowed origin can read the answer.
pub fn allow(origin: HeaderValue, cors: Cors, headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(cors.exposed));
    headers.append(VARY, HeaderValue::from_static("Origin"));
}

/// Adds the CORS headers of the answer to a preflight request (Fetch standard, section 3.3).
pub fn allow_preflight(cors: Cors, headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(cors.methods));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(cors.request_headers));
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn check(host: &str, origin: Option<&str>) -> bool {
        let rules = OriginRules {
            hosts: Some(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec()),
            origins: vec![AllowedOrigin::parse("http://localhost:*").unwrap()],
        };
        let request = Request::builder().header(HOST, host);
        let request = origin.into_iter().fold(request, |request, origin| request.header(ORIGIN, origin));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        rules.check(&parts).is_ok_and(|source| !source.foreign_host)
    }

    #[test]
    fn the_target_names_the_host_before_the_header_does_which_is_one_and_in_http_1_1_required() {
        let rules = OriginRules { hosts: Some(vec!["localhost".to_owned()]), origins: Vec::new() };
        let check_in = |version, uri: &str, hosts: &[&str]| {
            let request = Request::builder().version(version).uri(uri);
            let request = hosts.iter().fold(request, |request, host| request.header(HOST, *host));
            let (parts, ()) = request.body(()).unwrap().into_parts();
            rules.check(&parts).map(|source| source.foreign_host).map_err(|fault| fault.name())
        };
        let check = |uri, hosts: &[&str]| check_in(Version::HTTP_11, uri, hosts);
        assert_eq!(check("http://localhost/a/mcp", &["evil.example"]), Ok(false));
        assert_eq!(check_in(Version::HTTP_2, "http://localhost:80/a/mcp", &[]), Ok(false));
        for target in ["http://evil.example/a/mcp", "http://localhost@evil.example/a/mcp"] {
            assert_eq!(check(target, &["localhost"]), Ok(true), "{target}");
        }
        assert_eq!(check("/a/mcp", &["localhost", "localhost"]), Err("invalid_request"));
        assert_eq!(check("/a/mcp", &[]), Err("invalid_request"));
        assert_eq!(check("http://localhost/a/mcp", &[]), Err("invalid_request"));
        assert_eq!(check_in(Version::HTTP_10, "/a/mcp", &[]), Ok(true));
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

    #[test]
    fn only_ip_literals_and_allowed_names_are_accepted() {
        for hosts in [None, Some(vec!["mcp.example.com".to_owned()])] {
            let known = hosts.is_some();
            let rules = OriginRules { hosts, origins: Vec::new() };
            let names = |host: &'static str| {
                let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
                rules.has_literal_or_allowed_host(&Uri::from_static("/metrics"), &headers)
            };
            for host in ["127.0.0.1:8095", "10.1.2.3", "[::1]:8095", "LOCALHOST:1"] {
                assert!(names(host), "{host}");
            }
            for host in ["evil.example", "127.0.0.1.evil.example", "", "1.2.3"] {
                assert!(!names(host), "{host}");
            }
            assert_eq!(names("mcp.example.com"), known);
        }
    }
}
