//! Why a request fails, independent of the protocol that reports it.

use std::borrow::Cow;
use std::time::Duration;

use content_source::FetchError;

use super::audit::event::Outcome;
use super::ids::ResourceUri;
use super::limits::{LimitScope, Limited};
use super::scope::Revision;

/// Maximum bytes of client input that an error message repeats.
const MAX_ECHO: usize = 256;

/// Truncates client input for an error message.
pub fn shortened(text: &str) -> String {
    if text.len() <= MAX_ECHO {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_ECHO);
    format!("{}…", &text[..end])
}

/// Why a request was refused or failed. Each surface maps it to its own status codes, once.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The body is not JSON.
    #[error("{0}")]
    ParseError(Cow<'static, str>),
    /// The body is JSON, but not a message of the protocol.
    #[error("{0}")]
    InvalidRequest(Cow<'static, str>),
    /// A parameter or a member of the body is invalid.
    #[error("{0}")]
    InvalidParams(Cow<'static, str>),
    /// Required arguments of a prompt are missing, at least one.
    #[error("missing argument: {}", .0.first().map_or("", String::as_str))]
    MissingArguments(Vec<String>),
    /// The protocol revision does not have this method.
    #[error("unknown method: {0}")]
    MethodNotFound(String),
    /// No resource or template serves this URI.
    #[error("resource not found: {0}")]
    ResourceNotFound(ResourceUri),
    /// A tool's result would have more data than it may have, in bytes.
    #[error("the data has {bytes} bytes, more than the {most} that the result of a tool may have")]
    ResultTooLarge {
        /// The number of bytes.
        bytes: usize,
        /// The maximum.
        most: usize,
    },
    /// The answers to the messages of a batch before this one have more bytes than all may have.
    #[error("the answers to this batch have more than {0} bytes already; send this message on its own")]
    BatchTooLarge(usize),
    /// There is no skill or directory of this URI.
    #[error("unknown {what}: {uri}")]
    UnknownUri {
        /// What the URI should be of.
        what: &'static str,
        /// The URI.
        uri: ResourceUri,
    },
    /// The method requires a session.
    #[error("{0} needs a session; send initialize first")]
    SessionRequired(&'static str),
    /// The session does not exist, has ended, or belongs to another principal.
    #[error("session not found")]
    SessionNotFound,
    /// The credential is missing or invalid.
    #[error("a valid credential is required")]
    Unauthenticated,
    /// The request has two credentials that differ. Neither is verified.
    #[error("the request has two different credentials; send one, in Authorization or in X-Agent-API-Key")]
    ConflictingCredentials,
    /// The credential is valid, but not for this agent.
    #[error("this credential does not reach that agent")]
    Forbidden,
    /// The credential is valid, but not for this call; names the requirement or bound that is violated.
    #[error("{0}")]
    NotPermitted(Cow<'static, str>),
    /// The credential does not have the required scope.
    #[error("this credential lacks the scope {0}")]
    InsufficientScope(&'static str),
    /// The agent is disabled. Reported only to credentials of the agent.
    #[error("this agent is disabled")]
    AgentDisabled,
    /// `Origin` or `Host` is not allowed.
    #[error("{0}")]
    ForbiddenOrigin(&'static str),
    /// The `Content-Type` of the body is not the expected one.
    #[error("Content-Type must be {0}")]
    UnsupportedMediaType(&'static str),
    /// The body has a `Content-Encoding`.
    #[error("Content-Encoding is not supported; send the body as it is")]
    UnsupportedContentEncoding,
    /// `Accept` excludes the media type of the response.
    #[error("Accept must admit {0}")]
    NotAcceptable(&'static str),
    /// The body exceeds the limit, in bytes.
    #[error("the body is longer than {0} bytes")]
    PayloadTooLarge(usize),
    /// The body arrives at less than the minimum rate, in bytes per second.
    #[error(
        "the body arrived too slowly: at least {0} bytes/s are expected; send it again over a faster connection"
    )]
    SlowBody(u32),
    /// A rate or the number of streams exceeds its limit.
    #[error("{limited} for this {}; retry in {} s", scope.as_str(), retry_seconds(*retry_after))]
    RateLimited {
        /// What the limit applies to.
        scope: LimitScope,
        /// The limit that was exceeded.
        limited: Limited,
        /// Time until a retry can succeed.
        retry_after: Duration,
    },
    /// A quota per day or month is exceeded.
    #[error("{quota} quota of this {} exceeded", scope.as_str())]
    QuotaExceeded {
        /// What the quota applies to.
        scope: LimitScope,
        /// Which quota, such as `daily call`.
        quota: &'static str,
        /// Time until the next period begins.
        retry_after: Duration,
    },
    /// The gateway is overloaded or shutting down.
    #[error("the gateway is overloaded or shutting down; try again")]
    Unavailable {
        /// Time until a retry can succeed.
        retry_after: Duration,
    },
    /// The gateway is not built yet.
    #[error("the gateway is starting; try again")]
    Starting,
    /// The database is unavailable, and the answer is not in memory.
    #[error("the database cannot be reached; try again")]
    StorageUnavailable,
    /// A source of content did not answer in time.
    #[error("the source of this content did not answer in time; try again")]
    SourceTimeout,
    /// A source of content failed.
    #[error("the source of this content failed: {}", .0.as_str())]
    SourceFailed(FetchError),
    /// A bug. The details are logged with the request's id, and not sent.
    #[error("internal error")]
    Internal(String),
    /// The object does not exist or is not accessible to the caller.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// The key has expired, so that it counts as not found where a key in force is needed; with the time of its expiry.
    #[error("this key expired at {0}; create a new one, since only a key that is in force can be rotated")]
    KeyExpired(String),
    /// An object with this name exists.
    #[error("{0} exists already")]
    AlreadyExists(&'static str),
    /// `If-Match` or `If-None-Match` failed; with the current revision of the object, if it exists.
    #[error("precondition failed: {}", current(*.0))]
    RevisionMismatch(Option<Revision>),
    /// Other objects refer to the object.
    #[error("{0}")]
    InUse(&'static str),
    /// The slug belonged to an agent of another tenant.
    #[error("this slug is retired")]
    SlugRetired,
}

/// A waiting time in whole seconds, rounded up and at least 1, as in `Retry-After`.
fn retry_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

fn current(revision: Option<Revision>) -> Cow<'static, str> {
    match revision {
        Some(revision) => format!("the current revision is {revision}").into(),
        None => "it does not exist".into(),
    }
}

impl Fault {
    /// [`Unavailable`](Self::Unavailable) for a temporary lack of capacity.
    pub const BUSY: Self = Self::Unavailable { retry_after: Duration::from_secs(1) };
    /// [`NotFound`](Self::NotFound) for an agent.
    pub const NO_AGENT: Self = Self::NotFound("agent");
    /// [`NotFound`](Self::NotFound) for a tenant.
    pub const NO_TENANT: Self = Self::NotFound("tenant");

    /// [`InvalidParams`](Self::InvalidParams) with a message.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::InvalidParams(message.into())
    }

    /// [`NotPermitted`](Self::NotPermitted) with a message.
    pub fn not_permitted(message: impl Into<Cow<'static, str>>) -> Self {
        Self::NotPermitted(message.into())
    }

    /// Prefixes the message of [`InvalidParams`](Self::InvalidParams) with its place; leaves other faults unchanged.
    #[must_use]
    pub fn within(self, place: impl std::fmt::Display) -> Self {
        match self {
            Self::InvalidParams(message) => Self::invalid_params(format!("{place}: {message}")),
            other => other,
        }
    }

    /// [`InvalidParams`](Self::InvalidParams) for a name that does not exist.
    pub fn unknown(what: &str, name: &str) -> Self {
        Self::invalid_params(format!("unknown {what}: {}", shortened(name)))
    }

    /// [`unknown`](Self::unknown) for a prompt.
    pub fn unknown_prompt(name: &str) -> Self {
        Self::unknown("prompt", name)
    }

    /// [`unknown`](Self::unknown) for a connection that does not exist, or that the tenant may not use, which a member
    /// names.
    pub fn unknown_connection(member: &str, id: &str) -> Self {
        Self::unknown("connection", id).within(member)
    }

    /// [`Internal`](Self::Internal) for a result that cannot be encoded.
    pub fn cannot_encode(why: impl std::fmt::Display) -> Self {
        Self::Internal(format!("cannot encode a result: {why}"))
    }

    /// The stable name of the fault, as in `data.code` and problem documents.
    pub fn name(&self) -> &'static str {
        self.outcome().as_str()
    }

    /// The outcome of a request that fails so.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::ParseError(_) => Outcome::ParseError,
            Self::InvalidRequest(_) | Self::SlowBody(_) => Outcome::InvalidRequest,
            Self::InvalidParams(_) | Self::MissingArguments(_) | Self::UnknownUri { .. } => {
                Outcome::InvalidParams
            }
            Self::MethodNotFound(_) => Outcome::MethodNotFound,
            Self::ResourceNotFound(_) => Outcome::ResourceNotFound,
            Self::SessionRequired(_) => Outcome::SessionRequired,
            Self::SessionNotFound => Outcome::SessionNotFound,
            Self::Unauthenticated | Self::ConflictingCredentials => Outcome::Unauthenticated,
            Self::Forbidden | Self::NotPermitted(_) => Outcome::Forbidden,
            Self::InsufficientScope(_) => Outcome::InsufficientScope,
            Self::AgentDisabled => Outcome::AgentDisabled,
            Self::ForbiddenOrigin(_) => Outcome::ForbiddenOrigin,
            Self::UnsupportedMediaType(_) | Self::UnsupportedContentEncoding => Outcome::UnsupportedMediaType,
            Self::NotAcceptable(_) => Outcome::NotAcceptable,
            Self::PayloadTooLarge(_) | Self::ResultTooLarge { .. } | Self::BatchTooLarge(_) => {
                Outcome::PayloadTooLarge
            }
            Self::RateLimited { .. } => Outcome::RateLimited,
            Self::QuotaExceeded { .. } => Outcome::QuotaExceeded,
            Self::Unavailable { .. } | Self::Starting => Outcome::Unavailable,
            Self::StorageUnavailable => Outcome::StorageUnavailable,
            Self::SourceTimeout => Outcome::SourceTimeout,
            Self::SourceFailed(_) => Outcome::SourceFailed,
            Self::Internal(_) => Outcome::Internal,
            Self::NotFound(_) | Self::KeyExpired(_) => Outcome::NotFound,
            Self::AlreadyExists(_) => Outcome::AlreadyExists,
            Self::RevisionMismatch(_) => Outcome::RevisionMismatch,
            Self::InUse(_) => Outcome::InUse,
            Self::SlugRetired => Outcome::SlugRetired,
        }
    }

    /// The time after which a retry may succeed, if it may at all.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after }
            | Self::RateLimited { retry_after, .. }
            | Self::QuotaExceeded { retry_after, .. } => Some(*retry_after),
            Self::Starting | Self::StorageUnavailable => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn echoed_input_is_truncated_at_a_character() {
        assert_eq!(shortened(&"x".repeat(256)), "x".repeat(256));
        assert_eq!(shortened(&format!("{}ää", "x".repeat(255))), format!("{}…", "x".repeat(255)));
    }
}
