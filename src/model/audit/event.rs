//! An audit event (one request, call, or end of a stream), and the hashes that events refer to.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use crate::model::caller::CredentialKind;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Outcome;
use crate::model::ids::{AgentId, KeyId, PrincipalId, SessionUid, Slug, TenantId};
use crate::model::limits::RateLimit;
use crate::model::scope::Revision;

/// A SHA-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The `previous` hash of the first row of a chain.
    pub const NONE: Self = Self([0; 32]);

    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads a stored hash; `None` if it does not have 32 bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("expected 64 hexadecimal digits"))
    }
}

/// Maximum length in bytes of an id, method, client name or slug.
const MAX_NAME: usize = 256;
/// Maximum length in bytes of a subject: that of a URI.
const MAX_SUBJECT: usize = 2_048;

/// The kind of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActorKind {
    /// Not known: the credential is not valid, or was not verified.
    #[default]
    Unknown,
    /// A caller without a credential.
    Anybody,
    /// An agent key.
    Agent,
    /// A tenant's owner key.
    Owner,
    /// An access token of an issuer.
    Token,
    /// The operator.
    Operator,
}

impl ActorKind {
    /// Whether the caller has a valid credential.
    pub fn has_credential(self) -> bool {
        !matches!(self, Self::Unknown | Self::Anybody)
    }
}

impl From<CredentialKind> for ActorKind {
    fn from(kind: CredentialKind) -> Self {
        match kind {
            CredentialKind::AgentKey => Self::Agent,
            CredentialKind::OwnerKey => Self::Owner,
            CredentialKind::Token => Self::Token,
        }
    }
}

impl ActorKind {
    /// The value of the column `principal_kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Anybody => "anybody",
            Self::Agent => "agent",
            Self::Owner => "owner",
            Self::Token => "token",
            Self::Operator => "operator",
        }
    }
}

/// The caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Actor {
    /// The kind of the caller.
    pub kind: ActorKind,
    /// Identity of the caller.
    pub principal: Option<PrincipalId>,
    /// The key used.
    pub key: Option<KeyId>,
    /// The rate limit of the key, which bounds the rows of its refused requests. Not part of the row.
    pub limits: RateLimit,
}

impl Actor {
    /// A caller without a credential.
    pub fn anybody() -> Self {
        Self { kind: ActorKind::Anybody, ..Self::default() }
    }

    /// The operator, with one of the operator keys.
    pub fn operator(key: KeyId) -> Self {
        Self { kind: ActorKind::Operator, key: Some(key), ..Self::default() }
    }
}

/// Name and version of a client, as sent by it, truncated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientName {
    /// Name of the client.
    pub name: Box<str>,
    /// Version of the client.
    pub version: Box<str>,
}

impl ClientName {
    /// Truncates the name and version of a client.
    pub fn new(name: &str, version: &str) -> Self {
        Self { name: named(name), version: named(version) }
    }
}

/// Hashes of a definition and its content before and after a change; `None` if it did not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeHashes {
    /// Hash before the change.
    pub before: Option<Digest>,
    /// Hash after the change.
    pub after: Option<Digest>,
}

/// An audit event, before it has a position in a chain. It never contains content, arguments or secrets.
#[derive(Debug, Clone)]
pub struct Event {
    /// When the event was created, in whole microseconds.
    pub at: OffsetDateTime,
    /// Id of the request.
    pub request: Box<str>,
    /// Trace id of the request: as sent by the client, else that of the exported trace.
    pub trace: Option<[u8; 16]>,
    /// Tenant of the subject of the request.
    pub tenant: Option<TenantId>,
    /// Agent of the request.
    pub agent: Option<AgentId>,
    /// Slug of the agent as named in the request.
    pub slug: Option<Box<str>>,
    /// The caller.
    pub actor: Actor,
    /// Address of the client.
    pub client: ClientAddress,
    /// Name and version of the client, as sent by it.
    pub client_name: Option<ClientName>,
    /// Protocol revision.
    pub protocol: Option<&'static str>,
    /// Session of the request.
    pub session: Option<SessionUid>,
    /// MCP method, or HTTP method and path.
    pub method: Cow<'static, str>,
    /// Subject of the request: a URI, the name of a prompt, a key's id, or a slug.
    pub subject: Option<Box<str>>,
    /// The connection that content was taken from. Encoded as the version and with the subject.
    pub connection: Option<Slug>,
    /// How the request or the stream ended.
    pub outcome: Outcome,
    /// HTTP status of the response.
    pub status: Option<u16>,
    /// Duration in microseconds.
    pub micros: u64,
    /// Bytes of the request body.
    pub bytes_in: u64,
    /// Bytes of the response body, if known when the event is created.
    pub bytes_out: Option<u64>,
    /// The revision that was written or served.
    pub revision: Option<Revision>,
    /// What a change modified.
    pub difference: ChangeHashes,
    /// Whether the request was refused since its labels hide what it names from the caller. Encoded as the version.
    pub hidden: bool,
}

impl Event {
    /// An event with the given request, and without caller and outcome.
    pub fn new(
        at: OffsetDateTime,
        request: Box<str>,
        client: ClientAddress,
        method: Cow<'static, str>,
    ) -> Self {
        Self {
            at,
            request,
            trace: None,
            tenant: None,
            agent: None,
            slug: None,
            actor: Actor::default(),
            client,
            client_name: None,
            protocol: None,
            session: None,
            method,
            subject: None,
            connection: None,
            outcome: Outcome::Ok,
            status: None,
            micros: 0,
            bytes_in: 0,
            bytes_out: None,
            revision: None,
            difference: ChangeHashes::default(),
            hidden: false,
        }
    }
}

/// Truncates a name, an id or a method.
pub fn named(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(MAX_NAME)].into()
}

/// Truncates a subject.
pub fn subject(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(MAX_SUBJECT)].into()
}

#[cfg(test)]
mod tests {
    use super::{Digest, named};

    #[test]
    fn digest_parses_to_itself() {
        let digest = Digest::of(b"x");
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Digest::parse(&"g".repeat(64)), None);
        assert_eq!(Digest::parse(&"ä".repeat(32)), None);
    }

    #[test]
    fn long_names_are_truncated_at_a_character() {
        assert_eq!(&*named("curl"), "curl");
        assert_eq!(&*named(&format!("{}ää", "x".repeat(255))), "x".repeat(255));
    }
}
