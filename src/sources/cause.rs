//! What causes fetches.

/// What causes a fetch. It pays for it: it has limits and a circuit of its own within those of the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchCause {
    /// Callers with a credential of the tenant, and writes of its definitions: all of the tenant's limits are theirs.
    Tenant,
    /// Anonymous callers of the tenant's public agents, who choose the values of variables.
    Anonymous,
    /// The watch of content, which also anonymous callers may be subscribed to.
    Poll {
        /// Whether the source has answered for this content before. If it has not, a failure may be due to values that the
        /// subscriber chose.
        is_known: bool,
    },
}

impl FetchCause {
    /// The number of causes.
    pub(super) const COUNT: usize = 3;

    /// The number of the cause.
    pub(super) fn index(self) -> usize {
        match self {
            Self::Tenant => 0,
            Self::Anonymous => 1,
            Self::Poll { .. } => 2,
        }
    }

    /// Whether failures count for the circuit of the cause.
    pub(super) fn has_failures_counted(self) -> bool {
        self != Self::Poll { is_known: false }
    }
}
