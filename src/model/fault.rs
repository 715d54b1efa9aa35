//! Everything that can go wrong for a caller, by the contract's stable names.

use std::borrow::Cow;
use std::time::Duration;

use super::limits::Rate;
use super::outcome::Outcome;
use super::scope::Revision;
use super::uri::ResourceUri;

/// Most bytes of what a client sent that an error says back to it.
const MAX_ECHO: usize = 256;

/// What a client sent, short enough to be said back to it.
pub fn shortened(text: &str) -> String {
    if text.len() <= MAX_ECHO {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_ECHO);
    format!("{}…", &text[..end])
}

/// Why a request is refused or failed. Each border maps it once to its own status codes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// The body is not JSON.
    #[error("{0}")]
    ParseError(Cow<'static, str>),
    /// The body is JSON, and not a message of the protocol.
    #[error("{0}")]
    InvalidRequest(Cow<'static, str>),
    /// The parameters, or a member of the body, are wrong.
    #[error("{0}")]
    InvalidParams(Cow<'static, str>),
    /// The method is not one of this revision of the protocol.
    #[error("unknown method: {0}")]
    MethodNotFound(String),
    /// No resource answers to this URI.
    #[error("resource not found: {0}")]
    ResourceNotFound(ResourceUri),
    /// Needs a session.
    #[error("{0} needs a session; send initialize first")]
    SessionRequired(&'static str),
    /// The session is unknown, expired, ended or someone else's.
    #[error("session not found")]
    SessionNotFound,
    /// No credential, or none that is valid.
    #[error("a valid credential is required")]
    Unauthenticated,
    /// Valid, and not for this.
    #[error("this credential does not reach that agent")]
    Forbidden,
    /// Valid, and not for this call or not for so much; says what the call requires or which bound holds.
    #[error("{0}")]
    NotPermitted(Cow<'static, str>),
    /// The credential lacks a scope.
    #[error("this credential lacks the scope {0}")]
    InsufficientScope(&'static str),
    /// The agent is switched off; told to its own credentials only.
    #[error("this agent is disabled")]
    AgentDisabled,
    /// `Origin` or `Host` is not allowed.
    #[error("{0}")]
    ForbiddenOrigin(&'static str),
    /// The body is declared to be something else than asked for.
    #[error("Content-Type must be {0}")]
    UnsupportedMediaType(&'static str),
    /// The body is in a content coding.
    #[error("Content-Encoding is not supported; send the body as it is")]
    UnsupportedContentEncoding,
    /// The caller does not accept what would be sent.
    #[error("Accept must admit {0}")]
    NotAcceptable(&'static str),
    /// The body is longer than the limit, in bytes.
    #[error("the body is longer than {0} bytes")]
    PayloadTooLarge(usize),
    /// The body arrives at less than so many bytes a second.
    #[error(
        "the body arrived too slowly: at least {0} bytes/s are expected; send it again over a faster connection"
    )]
    SlowBody(u32),
    /// The caller asks for more than he may.
    #[error("more than {limited} for this {}", scope.as_str())]
    RateLimited {
        /// Whose limit it is.
        scope: LimitScope,
        /// What is limited, and to how much.
        limited: Limited,
        /// When to try again.
        retry_after: Duration,
    },
    /// What may be used in a day or a month is used up.
    #[error("the {quota} of this {} are used up", scope.as_str())]
    QuotaExceeded {
        /// Whose quota it is.
        scope: LimitScope,
        /// Which one, such as `calls of a day`.
        quota: &'static str,
        /// When the next day or month begins.
        retry_after: Duration,
    },
    /// The gateway has more to do than it takes on.
    #[error("the gateway is overloaded or shutting down; try again")]
    Unavailable {
        /// When to try again.
        retry_after: Duration,
    },
    /// The database is away and the answer is not held in memory.
    #[error("the database cannot be reached; try again")]
    StorageUnavailable,
    /// A bug; what it is stands in the log under the request's id, and nowhere else.
    #[error("internal error")]
    Internal(String),
    /// No such thing, or not the caller's.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// There is one already.
    #[error("{0} exists already")]
    AlreadyExists(&'static str),
    /// `If-Match` does not name the present revision, if there is one, or `If-None-Match` does.
    #[error("If-Match or If-None-Match does not hold")]
    RevisionMismatch(Option<Revision>),
    /// The slug belonged to another tenant's agent.
    #[error("this slug is retired")]
    SlugRetired,
}

/// Whose use is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitScope {
    /// That of one key.
    Key,
    /// That of one agent.
    Agent,
    /// That of one tenant.
    Tenant,
    /// That of one address.
    Address,
}

/// What is limited, and to how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// What may be used in a time.
    Rate(Rate),
    /// Streams that are open at once.
    Streams(usize),
}

impl std::fmt::Display for Limited {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rate(rate) => write!(formatter, "{} requests a second", rate.per_second),
            Self::Streams(most) => write!(formatter, "{most} streams"),
        }
    }
}

impl LimitScope {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Key, Self::Agent, Self::Tenant, Self::Address];

    /// As it is told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Agent => "agent",
            Self::Tenant => "tenant",
            Self::Address => "address",
        }
    }
}

impl Fault {
    /// Bad parameters, with what is wrong.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::InvalidParams(message.into())
    }

    /// Not permitted, with what the call requires or which bound holds.
    pub fn not_permitted(message: impl Into<Cow<'static, str>>) -> Self {
        Self::NotPermitted(message.into())
    }

    /// Says of bad parameters in what they stand; any other fault stays as it is.
    #[must_use]
    pub fn within(self, place: impl std::fmt::Display) -> Self {
        match self {
            Self::InvalidParams(wrong) => Self::invalid_params(format!("{place}: {wrong}")),
            other => other,
        }
    }

    /// Bad parameters: what they name is not there.
    pub fn unknown(what: &str, name: &str) -> Self {
        Self::invalid_params(format!("unknown {what}: {}", shortened(name)))
    }

    /// As [`unknown`](Self::unknown), of a prompt.
    pub fn unknown_prompt(name: &str) -> Self {
        Self::unknown("prompt", name)
    }

    /// The stable name of the contract.
    pub fn name(&self) -> &'static str {
        self.outcome().as_str()
    }

    /// The outcome of a request that fails so.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::ParseError(_) => Outcome::ParseError,
            Self::InvalidRequest(_) | Self::SlowBody(_) => Outcome::InvalidRequest,
            Self::InvalidParams(_) => Outcome::InvalidParams,
            Self::MethodNotFound(_) => Outcome::MethodNotFound,
            Self::ResourceNotFound(_) => Outcome::ResourceNotFound,
            Self::SessionRequired(_) => Outcome::SessionRequired,
            Self::SessionNotFound => Outcome::SessionNotFound,
            Self::Unauthenticated => Outcome::Unauthenticated,
            Self::Forbidden | Self::NotPermitted(_) => Outcome::Forbidden,
            Self::InsufficientScope(_) => Outcome::InsufficientScope,
            Self::AgentDisabled => Outcome::AgentDisabled,
            Self::ForbiddenOrigin(_) => Outcome::ForbiddenOrigin,
            Self::UnsupportedMediaType(_) | Self::UnsupportedContentEncoding => Outcome::UnsupportedMediaType,
            Self::NotAcceptable(_) => Outcome::NotAcceptable,
            Self::PayloadTooLarge(_) => Outcome::PayloadTooLarge,
            Self::RateLimited { .. } => Outcome::RateLimited,
            Self::QuotaExceeded { .. } => Outcome::QuotaExceeded,
            Self::Unavailable { .. } => Outcome::Unavailable,
            Self::StorageUnavailable => Outcome::StorageUnavailable,
            Self::Internal(_) => Outcome::Internal,
            Self::NotFound(_) => Outcome::NotFound,
            Self::AlreadyExists(_) => Outcome::AlreadyExists,
            Self::RevisionMismatch(_) => Outcome::RevisionMismatch,
            Self::SlugRetired => Outcome::SlugRetired,
        }
    }

    /// More is asked for at once than there is room for. Another try helps soon.
    pub const BUSY: Self = Self::Unavailable { retry_after: Duration::from_secs(1) };

    /// How long to wait before another try, where another try may help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after }
            | Self::RateLimited { retry_after, .. }
            | Self::QuotaExceeded { retry_after, .. } => Some(*retry_after),
            Self::StorageUnavailable => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn an_echo_is_cut_between_characters() {
        assert_eq!(shortened(&"x".repeat(256)), "x".repeat(256));
        assert_eq!(shortened(&format!("{}ää", "x".repeat(255))), format!("{}…", "x".repeat(255)));
    }
}
