//! The era of a request, decided once, only here.

use super::headers::McpHeaders;
use super::version::ProtocolVersion;
use super::wire::{Incoming, Message, MethodName, Rejected};
use crate::model::method::{Era, Method};

/// The era of a request, with the source of a legacy revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEra {
    /// Revision `2026-07-28`.
    Modern,
    /// A revision with a handshake.
    Legacy(VersionSource),
}

impl RequestEra {
    /// The era without details.
    pub fn era(self) -> Era {
        match self {
            Self::Modern => Era::Modern,
            Self::Legacy(_) => Era::Legacy,
        }
    }
}

/// The source of the revision of a legacy request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionSource {
    /// This request negotiates it: an `initialize`, which opens a session even if it names one.
    Negotiation,
    /// The named session.
    Session,
    /// The request itself, without a session.
    Sessionless(ProtocolVersion),
}

/// Whether the version header alone makes a request without a body modern.
pub fn is_modern(headers: &McpHeaders<'_>) -> bool {
    let version = headers.protocol_version.value().and_then(ProtocolVersion::parse);
    headers.protocol_version.is_present() && version.is_none_or(|version| version.era() == Era::Modern)
}

/// Decides by the version header and the parsed body. `Mcp-Method`, `Mcp-Name` and `Mcp-Session-Id` have no influence.
pub fn decide(headers: &McpHeaders<'_>, body: &Result<Incoming<'_>, Rejected<'_>>) -> RequestEra {
    let version = headers.protocol_version.value().and_then(ProtocolVersion::parse);
    let legacy = version.filter(|version| version.era() == Era::Legacy);
    if declares_version(body) || is_modern(headers) {
        RequestEra::Modern
    } else if opens_session(body) {
        RequestEra::Legacy(VersionSource::Negotiation)
    } else if headers.session_id.is_present() {
        RequestEra::Legacy(VersionSource::Session)
    } else {
        RequestEra::Legacy(VersionSource::Sessionless(legacy.unwrap_or(ProtocolVersion::ASSUMED)))
    }
}

/// The revision of an error without better knowledge: that of the header; without a header the modern one if the body
/// declares a version.
pub fn named_version(
    headers: &McpHeaders<'_>,
    body: &Result<Incoming<'_>, Rejected<'_>>,
) -> Option<ProtocolVersion> {
    match headers.protocol_version.value() {
        Some(version) => ProtocolVersion::parse(version),
        None => declares_version(body).then_some(ProtocolVersion::V2026_07_28),
    }
}

fn declares_version(body: &Result<Incoming<'_>, Rejected<'_>>) -> bool {
    match body {
        Ok(incoming) => incoming.declares_version(),
        Err(rejected) => rejected.declares_version,
    }
}

fn opens_session(body: &Result<Incoming<'_>, Rejected<'_>>) -> bool {
    let Ok(Incoming::Message(Message::Request(request))) = body else { return false };
    request.method == MethodName::Known(Method::Initialize)
}

#[cfg(test)]
mod tests {
    use super::{RequestEra, VersionSource, decide, named_version};
    use crate::mcp::headers::{Field, McpHeaders};
    use crate::mcp::version::ProtocolVersion::{self, V2024_11_05, V2025_03_26, V2025_11_25, V2026_07_28};
    use crate::mcp::wire::parse;

    const PLAIN: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    const DECLARED: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}}"#;
    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;

    fn headers(version: Option<&'static str>, session: Option<&'static str>) -> McpHeaders<'static> {
        let field = |value: Option<&'static str>| value.map_or(Field::Absent, Field::Value);
        let (method, name) = (Field::Value("resources/read"), Field::Value("a:b"));
        McpHeaders { protocol_version: field(version), method, name, session_id: field(session) }
    }

    #[test]
    fn a_request_belongs_to_the_documented_era() {
        let sessionless = |version| RequestEra::Legacy(VersionSource::Sessionless(version));
        let session = RequestEra::Legacy(VersionSource::Session);
        let negotiation = RequestEra::Legacy(VersionSource::Negotiation);
        for (version, session_id, body, expected) in [
            (None, None, PLAIN, sessionless(V2025_03_26)),
            (Some("2024-11-05"), None, PLAIN, sessionless(V2024_11_05)),
            (Some("2025-11-25"), None, PLAIN, sessionless(V2025_11_25)),
            (Some("2025-11-25"), Some("s"), PLAIN, session),
            (None, Some("s"), PLAIN, session),
            (None, Some("s"), INITIALIZE, negotiation),
            (Some("2025-06-18"), None, INITIALIZE, negotiation),
            (Some("2026-07-28"), None, PLAIN, RequestEra::Modern),
            (Some("2026-07-28"), Some("s"), PLAIN, RequestEra::Modern),
            (Some("2026-07-28"), None, INITIALIZE, RequestEra::Modern),
            (Some("2099-01-01"), None, PLAIN, RequestEra::Modern),
            (Some(""), None, PLAIN, RequestEra::Modern),
            (None, None, DECLARED, RequestEra::Modern),
            (Some("2025-11-25"), Some("s"), DECLARED, RequestEra::Modern),
            // For batches and unreadable bodies only the header decides.
            (None, None, "[1]", sessionless(V2025_03_26)),
            (None, Some("s"), "[1]", session),
            (Some("2026-07-28"), None, "[1]", RequestEra::Modern),
            (None, None, "{", sessionless(V2025_03_26)),
            (Some("2099-01-01"), None, "{", RequestEra::Modern),
        ] {
            let decided = decide(&headers(version, session_id), &parse(body.as_bytes()));
            assert_eq!(decided, expected, "{version:?} {session_id:?} {body}");
        }
    }

    #[test]
    fn a_version_header_that_contradicts_itself_names_no_legacy_revision() {
        let mut headers = headers(None, None);
        headers.protocol_version = Field::Malformed("2025-06-18, 2025-11-25".to_owned());
        assert_eq!(decide(&headers, &parse(PLAIN.as_bytes())), RequestEra::Modern);
    }

    #[test]
    fn an_error_is_written_in_the_version_that_is_named() {
        let named = |version, body: &str| named_version(&headers(version, None), &parse(body.as_bytes()));
        let none: Option<ProtocolVersion> = None;
        assert_eq!(named(Some("2025-11-25"), "{"), Some(V2025_11_25));
        assert_eq!(named(Some("2025-11-25"), DECLARED), Some(V2025_11_25));
        assert_eq!(named(None, DECLARED), Some(V2026_07_28));
        assert_eq!(named(None, PLAIN), none);
        assert_eq!(named(Some("2099-01-01"), DECLARED), none);
    }
}
