//! The metadata of protected resources (RFC 9728): which authorization servers issue tokens for an endpoint.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Response};
use serde::Serialize;

use super::body::Body;
use super::credential::bearer;
use super::problem;
use crate::config::PublicUrl;
use crate::model::ids::Slug;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The metadata documents.
#[derive(Debug, Clone)]
pub struct Metadata {
    public_url: PublicUrl,
    issuers: Vec<String>,
}

/// The resource that a document describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protected<'a> {
    /// The gateway itself: its administration API.
    Gateway,
    /// The MCP endpoint of an agent, whether it exists or not.
    Endpoint(Cow<'a, str>),
}

#[derive(Serialize)]
struct Document<'a> {
    resource: String,
    authorization_servers: &'a [String],
    scopes_supported: &'a [&'static str],
    bearer_methods_supported: [&'static str; 1],
}

impl<'a> Protected<'a> {
    /// The agent's endpoint if the text is a valid agent id, else the gateway.
    pub fn endpoint_or_gateway(agent: &'a str) -> Self {
        if Slug::parse_agent(agent).is_ok() { Self::Endpoint(agent.into()) } else { Self::Gateway }
    }
}

impl Metadata {
    /// The documents of a gateway with this public URL and these trusted issuers; `None` without issuers.
    pub fn new(public_url: PublicUrl, issuers: Vec<String>) -> Option<Self> {
        (!issuers.is_empty()).then_some(Self { public_url, issuers })
    }

    /// The document at a path. The path of the public URL follows the well-known one (RFC 9728, section 3.1), unless a
    /// proxy has removed it.
    pub fn find<'p>(&self, path: &'p str) -> Option<Protected<'p>> {
        let behind = path.strip_prefix(WELL_KNOWN)?;
        let behind = behind.strip_prefix(self.prefix()).unwrap_or(behind);
        if matches!(behind, "" | "/") {
            return Some(Protected::Gateway);
        }
        let behind = behind.strip_suffix('/').unwrap_or(behind);
        let agent = Slug::decode_agent(behind.strip_prefix('/')?.strip_suffix("/mcp")?);
        Slug::parse_agent(&agent).is_ok().then_some(Protected::Endpoint(agent))
    }

    /// The URL of a document.
    pub fn url(&self, what: Protected<'_>) -> String {
        let (origin, prefix) = (self.public_url.origin(), self.prefix());
        match what {
            Protected::Gateway => format!("{origin}{WELL_KNOWN}{prefix}"),
            Protected::Endpoint(agent) => format!("{origin}{WELL_KNOWN}{prefix}/{agent}/mcp"),
        }
    }

    /// The path of the public URL, without a slash at its end.
    fn prefix(&self) -> &str {
        self.public_url.as_str().strip_prefix(self.public_url.origin()).unwrap_or_default()
    }

    /// Extends the challenge of an answer, if it has one: the URL of the document and, unless the challenge is about a
    /// scope, the scope to request and whether a token was refused.
    pub fn complete_challenge(&self, what: Protected<'_>, request: &HeaderMap, answer: &mut HeaderMap) {
        let Some(challenge) = answer.get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok()) else {
            return;
        };
        let mut sent = request.get_all(AUTHORIZATION).iter().filter_map(|value| value.to_str().ok());
        let more = match what {
            _ if challenge.contains("error=") => "",
            Protected::Gateway => r#", scope="registry""#,
            Protected::Endpoint(_) => r#", scope="mcp""#,
        };
        let refused = !more.is_empty() && sent.any(|value| bearer(value).is_some());
        let error = if refused { r#", error="invalid_token""# } else { "" };
        let value = format!(r#"{challenge}, resource_metadata="{}"{more}{error}"#, self.url(what));
        if let Ok(value) = HeaderValue::try_from(value) {
            answer.insert(WWW_AUTHENTICATE, value);
        }
    }

    /// Answers a request for a document.
    pub fn answer(&self, method: &Method, what: Protected<'_>) -> Response<Body> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return problem::method_not_allowed(Some("GET, HEAD")).map(Body::Axum);
        }
        let mut response = Response::new(Body::from(Bytes::from(self.document(what))));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
        response
    }

    fn document(&self, what: Protected<'_>) -> Vec<u8> {
        let (resource, scopes): (_, &[_]) = match what {
            Protected::Gateway => (self.public_url.to_string(), &["registry", "audit"]),
            Protected::Endpoint(agent) => (format!("{}/{agent}/mcp", self.public_url), &["mcp"]),
        };
        let document = Document {
            resource,
            authorization_servers: &self.issuers,
            scopes_supported: scopes,
            bearer_methods_supported: ["header"],
        };
        serde_json::to_vec(&document).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Metadata, Protected};
    use crate::config::PublicUrl;

    fn metadata(url: &str) -> Metadata {
        Metadata::new(PublicUrl::parse(url).unwrap(), vec!["https://login.example.com/".to_owned()]).unwrap()
    }

    #[test]
    fn a_document_is_at_the_url_of_the_challenge() {
        for url in ["https://mcp.example.com", "https://example.com:8443/hub"] {
            let metadata = metadata(url);
            for what in [Protected::Gateway, Protected::Endpoint("research".into())] {
                let address = metadata.url(what.clone());
                let path = address.strip_prefix(PublicUrl::parse(url).unwrap().origin()).unwrap();
                assert_eq!(metadata.find(path), Some(what.clone()), "{address}");
                assert_eq!(metadata.find(&format!("{path}/")), Some(what), "{address}");
            }
        }
        let behind = metadata("https://example.com/hub");
        let expected = "https://example.com/.well-known/oauth-protected-resource/hub/research/mcp";
        assert_eq!(behind.url(Protected::Endpoint("research".into())), expected);
        assert_eq!(
            behind.find("/.well-known/oauth-protected-resource/research/mcp"),
            Some(Protected::Endpoint("research".into()))
        );
    }

    #[test]
    fn an_invalid_agent_id_has_no_document() {
        for path in ["x", "/A/mcp", "/admin/mcp", "/a/b/mcp", "/a", "//mcp", "/mcp", "/a/mcp/x", "/a%22/mcp"]
        {
            let path = format!("/.well-known/oauth-protected-resource{path}");
            assert_eq!(metadata("https://mcp.example.com").find(&path), None, "{path}");
        }
        assert_eq!(metadata("https://mcp.example.com").find("/a/mcp"), None);
    }
}
