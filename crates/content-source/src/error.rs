//! Why content is not had, and why settings are refused.

/// Why a fetch or a scan fails. Names nothing of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The source has no such content.
    #[error("not found")]
    NotFound,
    /// The source did not answer in time by a deadline of its own (such as a statement timeout).
    #[error("timed out")]
    Timeout,
    /// No connection to the source, or it broke.
    #[error("unreachable")]
    Unreachable,
    /// The source refused the credentials, or they do not suffice.
    #[error("denied")]
    Denied,
    /// The source answered that it does not accept what it was asked; it may well answer something else.
    #[error("answered with an error")]
    Rejected,
    /// The source answered that it fails, or that it is overloaded.
    #[error("answered with an error")]
    Status {
        /// For how many seconds the source asks to be left alone (`Retry-After`).
        retry_after: Option<u32>,
    },
    /// The source answered that it is asked too often (status 429), whatever it is asked for.
    #[error("answered with an error")]
    RateLimited {
        /// For how many seconds the source asks to be left alone (`Retry-After`).
        retry_after: Option<u32>,
    },
    /// The content exceeds [`Bounds`](crate::Bounds).
    #[error("too large")]
    TooLarge,
    /// The content cannot be decoded.
    #[error("bad content")]
    BadContent,
    /// The egress policy, or a rule for paths or files, refuses the place.
    #[error("not allowed")]
    NotAllowed,
    /// The source's own pool of connections is exhausted.
    #[error("busy")]
    Busy,
}

impl FetchError {
    /// What a status of HTTP means that has no content. One of the client's concerns what it asked for; those of the server,
    /// and those that ask the client to come back later, concern the source.
    pub(crate) const fn of_status(status: u16, retry_after: Option<u32>) -> Self {
        match status {
            404 | 410 => Self::NotFound,
            401 | 403 => Self::Denied,
            429 => Self::RateLimited { retry_after },
            408 | 425 | 500.. => Self::Status { retry_after },
            _ => Self::Rejected,
        }
    }

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Denied => "denied",
            Self::Rejected | Self::Status { .. } | Self::RateLimited { .. } => "status",
            Self::TooLarge => "too_large",
            Self::BadContent => "bad_content",
            Self::NotAllowed => "not_allowed",
            Self::Busy => "busy",
        }
    }
}

/// Why the settings or secrets of a connection, or a place within it, are refused. The message continues the name of a member and tells no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{member} {problem}")]
pub struct SettingsError {
    /// The member, such as `settings.baseUrl`.
    pub member: String,
    /// What is wrong with it, what is expected.
    pub problem: String,
}

impl SettingsError {
    /// An error of a member.
    pub fn new(member: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { member: member.into(), problem: problem.into() }
    }
}
