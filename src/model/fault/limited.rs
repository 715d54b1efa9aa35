//! The limits on rates and streams that a request can exceed, and what they apply to.

use crate::model::limits::Rate;

/// What a limit applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitScope {
    /// One key.
    Key,
    /// One agent.
    Agent,
    /// One tenant.
    Tenant,
    /// One client address.
    Address,
}

impl LimitScope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Key, Self::Agent, Self::Tenant, Self::Address];

    /// The value of `data.scope`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Agent => "agent",
            Self::Tenant => "tenant",
            Self::Address => "address",
        }
    }
}

/// A limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// The rate of requests.
    Rate(Rate),
    /// The number of open streams.
    Streams(usize),
}

impl std::fmt::Display for Limited {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rate(rate) => {
                let plural = if rate.per_second.get() == 1 { "" } else { "s" };
                write!(formatter, "rate limit exceeded: {} request{plural}/s", rate.per_second)
            }
            Self::Streams(most) => {
                let plural = if *most == 1 { "" } else { "s" };
                write!(formatter, "stream limit exceeded: {most} stream{plural}")
            }
        }
    }
}
