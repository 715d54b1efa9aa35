//! The outcomes of requests and streams, by the stable names that answers, the audit log and metrics share.

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
    /// The thing to create exists.
    AlreadyExists = "already_exists",
    /// The credential does not reach the agent or does not permit the call.
    Forbidden = "forbidden",
    /// `Origin` or `Host` is not allowed.
    ForbiddenOrigin = "forbidden_origin",
    /// A header of MCP is missing or contradicts the body.
    HeaderMismatch = "header_mismatch",
    /// The credential lacks a scope.
    InsufficientScope = "insufficient_scope",
    /// A fault of the gateway.
    Internal = "internal",
    /// The parameters are wrong.
    InvalidParams = "invalid_params",
    /// The body is not a message of the protocol.
    InvalidRequest = "invalid_request",
    /// The path does not have the HTTP method.
    MethodNotAllowed = "method_not_allowed",
    /// The revision does not have the MCP method.
    MethodNotFound = "method_not_found",
    /// `Accept` excludes what must be sent.
    NotAcceptable = "not_acceptable",
    /// The thing does not exist, or not for the caller.
    NotFound = "not_found",
    /// The body is not JSON.
    ParseError = "parse_error",
    /// The body is too long.
    PayloadTooLarge = "payload_too_large",
    /// A quota is used up.
    QuotaExceeded = "quota_exceeded",
    /// A rate limit is exceeded.
    RateLimited = "rate_limited",
    /// No resource answers to the URI.
    ResourceNotFound = "resource_not_found",
    /// A precondition failed.
    RevisionMismatch = "revision_mismatch",
    /// The session does not exist, or not for the caller.
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

    /// Whether the request was refused for a limit or for lack of capacity, which usage counts apart from errors.
    pub const fn is_denied(self) -> bool {
        matches!(self, Self::RateLimited | Self::QuotaExceeded | Self::Unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    #[test]
    fn each_name_parses_to_its_own_outcome() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::parse(outcome.as_str()), Some(outcome));
        }
        assert_eq!(Outcome::parse("other"), None);
        assert_eq!(Outcome::parse("ended:bogus"), None);
    }
}
