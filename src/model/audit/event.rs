//! An audit event (one request, call, or end of a stream), and its outcome, by the stable names that answers, the audit log
//! and metrics share.

use std::borrow::Cow;

use time::OffsetDateTime;

use super::digest::Digest;
use crate::model::client_address::ClientAddress;
use crate::model::ids::{AgentId, KeyId, PrincipalId, SessionUid, Slug, TenantId};
use crate::model::limits::RateLimit;
use crate::model::method::Method;
use crate::model::scope::Revision;

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

    /// Whether the request was refused, or was a discovery: a key can cause many at little cost.
    pub fn is_refused_or_discovery(&self) -> bool {
        self.status.is_some_and(|status| status >= 400) || self.method == Method::Discover.name()
    }

    /// Whether the aggregator may add it to a row of many events, and is asked whether it does.
    pub fn may_be_aggregated(&self) -> bool {
        !self.actor.kind.has_credential() || self.is_refused_or_discovery()
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

macro_rules! outcomes {
    ($($(#[$doc:meta])* $outcome:ident = $name:literal,)+) => {
        /// How a request or a stream ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum Outcome {
            $($(#[$doc])* $outcome,)+
        }

        impl Outcome {
            /// Every outcome.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$outcome),+];

            /// The stable name.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$outcome => $name,)+
                }
            }
        }
    };
}

outcomes! {
    /// The request was served.
    #[default]
    Ok = "ok",
    /// The agent is disabled.
    AgentDisabled = "agent_disabled",
    /// The object to create exists.
    AlreadyExists = "already_exists",
    /// The credential does not reach the agent or does not permit the call.
    Forbidden = "forbidden",
    /// `Origin` or `Host` is not allowed.
    ForbiddenOrigin = "forbidden_origin",
    /// A header of MCP is missing or contradicts the body.
    HeaderMismatch = "header_mismatch",
    /// The request was answered by asking for input.
    InputRequired = "input_required",
    /// The credential lacks a scope.
    InsufficientScope = "insufficient_scope",
    /// Other objects refer to the object.
    InUse = "in_use",
    /// A fault of the gateway.
    Internal = "internal",
    /// The parameters are invalid.
    InvalidParams = "invalid_params",
    /// The body is not a message of the protocol.
    InvalidRequest = "invalid_request",
    /// The path does not have the HTTP method.
    MethodNotAllowed = "method_not_allowed",
    /// The revision does not have the MCP method.
    MethodNotFound = "method_not_found",
    /// `Accept` excludes the media type of the response.
    NotAcceptable = "not_acceptable",
    /// The object does not exist or is not accessible to the caller.
    NotFound = "not_found",
    /// The body is not JSON.
    ParseError = "parse_error",
    /// The body is too long.
    PayloadTooLarge = "payload_too_large",
    /// A quota is used up.
    QuotaExceeded = "quota_exceeded",
    /// A rate limit is exceeded.
    RateLimited = "rate_limited",
    /// No resource or template serves the URI.
    ResourceNotFound = "resource_not_found",
    /// A precondition failed.
    RevisionMismatch = "revision_mismatch",
    /// The session does not exist or belongs to another caller.
    SessionNotFound = "session_not_found",
    /// The method needs a session.
    SessionRequired = "session_required",
    /// The slug belongs to another tenant.
    SlugRetired = "slug_retired",
    /// A source of content failed.
    SourceFailed = "source_failed",
    /// A source of content did not answer in time.
    SourceTimeout = "source_timeout",
    /// The database cannot be reached.
    StorageUnavailable = "storage_unavailable",
    /// No credential, or none that is valid.
    Unauthenticated = "unauthenticated",
    /// The gateway is overloaded or shutting down.
    Unavailable = "unavailable",
    /// The body has a type or a coding that is not accepted.
    UnsupportedMediaType = "unsupported_media_type",
    /// The revision of the protocol is not served.
    UnsupportedProtocolVersion = "unsupported_protocol_version",
    /// A stream whose client disconnected.
    EndedDisconnected = "ended:disconnected",
    /// A stream whose caller lost access.
    EndedNotAllowed = "ended:not_allowed",
    /// A stream whose session ended.
    EndedSession = "ended:session",
    /// A stream of a gateway that shut down.
    EndedShutdown = "ended:shutdown",
    /// A stream that a newer one of its session replaced.
    EndedSuperseded = "ended:superseded",
}

impl Outcome {
    /// Reads a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == name)
    }

    /// Whether the request was served, by a result or by asking for input.
    pub const fn is_served(self) -> bool {
        matches!(self, Self::Ok | Self::InputRequired)
    }

    /// Whether the request was refused for a limit or for lack of capacity, which usage counts apart from errors.
    pub const fn is_denied(self) -> bool {
        matches!(self, Self::RateLimited | Self::QuotaExceeded | Self::Unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, named};

    #[test]
    fn long_names_are_truncated_at_a_character() {
        assert_eq!(&*named("curl"), "curl");
        assert_eq!(&*named(&format!("{}ää", "x".repeat(255))), "x".repeat(255));
    }

    #[test]
    fn each_name_parses_to_its_own_outcome() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::parse(outcome.as_str()), Some(outcome));
        }
        assert_eq!(Outcome::parse("other"), None);
        assert_eq!(Outcome::parse("ended:bogus"), None);
    }
}
