//! The protocol version of a request, which is its revision of the protocol: the table of the served revisions, one row each;
//! the headers of MCP; and the era, which is decided once, by the version header and the body.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::wire::{Message, MessageBody, MethodName, Rejected};
use crate::model::fault::shortened;
use crate::model::method::{Era, Method};

/// A served revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProtocolVersion {
    /// 2026-07-28.
    V2026_07_28,
    /// 2025-11-25.
    V2025_11_25,
    /// 2025-06-18.
    V2025_06_18,
    /// 2025-03-26.
    V2025_03_26,
    /// 2024-11-05.
    V2024_11_05,
}

/// The differences between revisions.
#[expect(clippy::struct_excessive_bools, reason = "a table of yes and no")]
struct Row {
    version: ProtocolVersion,
    text: &'static str,
    era: Era,
    /// The revision has JSON-RPC batches.
    batches: bool,
    /// An error may omit its `id`; in earlier revisions it is required, and `null` if unknown.
    errors_without_id: bool,
    /// An `Implementation` has a `title`.
    titles: bool,
    /// A server may declare `completions`.
    completions: bool,
    /// The stream of a session starts with an event that carries the resume position.
    priming: bool,
    /// The content types of prompt messages.
    content: ContentTypes,
    /// The members of tools and of their results.
    tools: ToolMembers,
}

/// The content types of a revision; each variant includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContentTypes {
    /// Text, images and embedded resources.
    First,
    /// Audio.
    Audio,
    /// Resource links.
    ResourceLinks,
}

/// The members of tools and of their results in a revision; each variant includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToolMembers {
    /// Name, description and input schema; content.
    First,
    /// Annotations.
    Annotations,
    /// Title and output schema; structured content.
    StructuredContent,
    /// Icons.
    Icons,
}

impl ToolMembers {
    /// Whether a tool has annotations.
    pub fn have_annotations(self) -> bool {
        self >= Self::Annotations
    }

    /// Whether a tool has a title and an output schema, and its result structured content.
    pub fn have_structured_content(self) -> bool {
        self >= Self::StructuredContent
    }

    /// Whether a tool has icons.
    pub fn have_icons(self) -> bool {
        self >= Self::Icons
    }
}

use Era::{Legacy, Modern};
use ProtocolVersion::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};

const TABLE: [Row; 5] = [
    Row {
        version: V2026_07_28,
        text: "2026-07-28",
        era: Modern,
        batches: false,
        errors_without_id: true,
        titles: true,
        completions: true,
        priming: false,
        content: ContentTypes::ResourceLinks,
        tools: ToolMembers::Icons,
    },
    Row {
        version: V2025_11_25,
        text: "2025-11-25",
        era: Legacy,
        batches: false,
        errors_without_id: true,
        titles: true,
        completions: true,
        priming: true,
        content: ContentTypes::ResourceLinks,
        tools: ToolMembers::Icons,
    },
    Row {
        version: V2025_06_18,
        text: "2025-06-18",
        era: Legacy,
        batches: false,
        errors_without_id: false,
        titles: true,
        completions: true,
        priming: false,
        content: ContentTypes::ResourceLinks,
        tools: ToolMembers::StructuredContent,
    },
    Row {
        version: V2025_03_26,
        text: "2025-03-26",
        era: Legacy,
        batches: true,
        errors_without_id: false,
        titles: false,
        completions: true,
        priming: false,
        content: ContentTypes::Audio,
        tools: ToolMembers::Annotations,
    },
    Row {
        version: V2024_11_05,
        text: "2024-11-05",
        era: Legacy,
        batches: false,
        errors_without_id: false,
        titles: false,
        completions: false,
        priming: false,
        content: ContentTypes::First,
        tools: ToolMembers::First,
    },
];

impl ProtocolVersion {
    /// Every served revision, newest first, as `supportedVersions` and `data.supported` list them.
    pub const SUPPORTED: [Self; TABLE.len()] = {
        let mut all = [V2026_07_28; TABLE.len()];
        let mut at = 0;
        while at < TABLE.len() {
            all[at] = TABLE[at].version;
            at += 1;
        }
        all
    };

    /// The answer to an `initialize` that requests an unsupported revision.
    pub const NEWEST_LEGACY: Self = V2025_11_25;

    /// The assumed revision of a request without session and version: the last one without the version header.
    pub const ASSUMED: Self = V2025_03_26;

    const fn row(self) -> &'static Row {
        // The rows are in the order of the variants; a test checks it.
        &TABLE[self as usize]
    }

    /// The text on the wire.
    pub const fn as_str(self) -> &'static str {
        self.row().text
    }

    /// Parses the text on the wire; `None` for an unsupported revision.
    pub fn parse(text: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.text == text).map(|row| row.version)
    }

    /// The era.
    pub const fn era(self) -> Era {
        self.row().era
    }

    /// Whether the revision has JSON-RPC batches.
    pub const fn knows_batches(self) -> bool {
        self.row().batches
    }

    /// Whether an error omits an unknown `id`; `null` otherwise.
    pub const fn omits_unreadable_ids(self) -> bool {
        self.row().errors_without_id
    }

    /// Whether `serverInfo` may have a `title`.
    pub const fn knows_titles(self) -> bool {
        self.row().titles
    }

    /// Whether a server may declare `completions`.
    pub const fn knows_completions(self) -> bool {
        self.row().completions
    }

    /// Whether the stream of a session starts with an event that carries the resume position.
    pub const fn primes_streams(self) -> bool {
        self.row().priming
    }

    /// The content types of prompt messages.
    pub const fn content_types(self) -> ContentTypes {
        self.row().content
    }

    /// The members of tools and of their results.
    pub const fn tool_members(self) -> ToolMembers {
        self.row().tools
    }
}

const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const SESSION_ID: &str = "mcp-session-id";
const ACCEPT: &str = "accept";
const CONTENT_TYPE: &str = "content-type";
const CONTENT_ENCODING: &str = "content-encoding";

/// The values of `Accept` that conforming clients send.
const USUAL_ACCEPT: [&str; 2] =
    ["application/json, text/event-stream", "text/event-stream, application/json"];
const USUAL_CONTENT_TYPE: &str = "application/json";

/// One header of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Field<'a> {
    /// The header is absent.
    #[default]
    Absent,
    /// The value without surrounding white space; repeated headers have equal values.
    Value(&'a str),
    /// Repeated with different values, or with characters that the header must not have; the text is approximate.
    Malformed(String),
}

/// The headers of MCP, and whether those of media types need parsing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct McpHeaders<'a> {
    /// `MCP-Protocol-Version`.
    pub protocol_version: Field<'a>,
    /// `Mcp-Method`.
    pub method: Field<'a>,
    /// `Mcp-Name`, not decoded.
    pub name: Field<'a>,
    /// `Mcp-Session-Id`.
    pub session_id: Field<'a>,
    /// Whether `Accept` is what conforming clients send: JSON and events are accepted, and `media_type` need not parse it.
    pub accepts_usual: bool,
    /// Whether `Content-Type` is what conforming clients send, and the body is not encoded: `media_type` need not parse it.
    pub declares_usual: bool,
}

impl<'a> McpHeaders<'a> {
    /// Reads them from the headers of a request.
    pub fn read(headers: &'a HeaderMap) -> Self {
        let mut read = Self::default();
        let (mut accepts, mut types, mut encodings) = (0, 0, 0);
        // One pass over the sent headers costs less than a look-up for each known one.
        for (name, value) in headers {
            let field = match name.as_str() {
                PROTOCOL_VERSION => &mut read.protocol_version,
                METHOD => &mut read.method,
                NAME => &mut read.name,
                SESSION_ID => &mut read.session_id,
                ACCEPT => {
                    accepts += 1;
                    read.accepts_usual = accepts == 1 && USUAL_ACCEPT.iter().any(|usual| value == usual);
                    continue;
                }
                CONTENT_TYPE => {
                    types += 1;
                    read.declares_usual = types == 1 && value == USUAL_CONTENT_TYPE;
                    continue;
                }
                CONTENT_ENCODING => {
                    encodings += 1;
                    continue;
                }
                _ => continue,
            };
            *field = if field.is_present() { Field::of_all(headers, name) } else { Field::of(value) };
        }
        read.declares_usual &= encodings == 0;
        read
    }

    /// Whether the version header alone makes a request without a body modern.
    pub fn are_modern(&self) -> bool {
        let version = self.protocol_version.value().and_then(ProtocolVersion::parse);
        self.protocol_version.is_present() && version.is_none_or(|version| version.era() == Era::Modern)
    }

    /// The revision of an error without better knowledge: that of the header; without a header the modern one if the body
    /// declares a version.
    pub fn named_version(&self, body: &Result<MessageBody<'_>, Rejected<'_>>) -> Option<ProtocolVersion> {
        match self.protocol_version.value() {
            Some(version) => ProtocolVersion::parse(version),
            None => declares_version(body).then_some(ProtocolVersion::V2026_07_28),
        }
    }
}

impl<'a> Field<'a> {
    fn of(value: &'a HeaderValue) -> Self {
        match value.to_str() {
            Ok(text) => Self::Value(text.trim_matches([' ', '\t'])),
            Err(_) => Self::Malformed(combined([value])),
        }
    }

    /// Merges the values of a repeated header.
    fn of_all(headers: &'a HeaderMap, name: &HeaderName) -> Self {
        let mut values = headers.get_all(name).iter();
        match values.next() {
            Some(first) if values.all(|other| other == first) => Self::of(first),
            _ => Self::Malformed(combined(headers.get_all(name))),
        }
    }

    /// Whether the header is present.
    pub fn is_present(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// The value, if it is valid.
    pub fn value(&self) -> Option<&'a str> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Malformed(_) => None,
        }
    }
}

/// All values in one list (RFC 9110, section 5.2).
fn combined<'a>(values: impl IntoIterator<Item = &'a HeaderValue>) -> String {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let values: Vec<_> = values.into_iter().take(2).map(text).collect();
    shortened(&values.join(", "))
}

/// The era of a request, with the source of a legacy revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEra {
    /// Revision `2026-07-28`.
    Modern,
    /// A revision with a handshake.
    Legacy(VersionSource),
}

impl RequestEra {
    /// Decides by the version header and the parsed body. `Mcp-Method` and `Mcp-Name` have no influence, nor has the session
    /// on a modern request.
    pub fn decide(headers: &McpHeaders<'_>, body: &Result<MessageBody<'_>, Rejected<'_>>) -> Self {
        let version = headers.protocol_version.value().and_then(ProtocolVersion::parse);
        let legacy = version.filter(|version| version.era() == Era::Legacy);
        if declares_version(body) || headers.are_modern() {
            Self::Modern
        } else if opens_session(body) {
            Self::Legacy(VersionSource::Negotiation)
        } else if headers.session_id.is_present() {
            Self::Legacy(VersionSource::Session)
        } else {
            Self::Legacy(VersionSource::Sessionless(legacy.unwrap_or(ProtocolVersion::ASSUMED)))
        }
    }

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

fn declares_version(body: &Result<MessageBody<'_>, Rejected<'_>>) -> bool {
    match body {
        Ok(incoming) => incoming.declares_version(),
        Err(rejected) => rejected.declares_version,
    }
}

fn opens_session(body: &Result<MessageBody<'_>, Rejected<'_>>) -> bool {
    let Ok(MessageBody::Message(Message::Request(request))) = body else { return false };
    request.method == MethodName::Known(Method::Initialize)
}

#[cfg(test)]
mod tests;
