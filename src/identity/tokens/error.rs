//! Why access tokens are refused.

/// The maximum number of agents in a token.
pub(super) const MAX_AGENTS: usize = 100;

/// Why a token is refused. All but the last have the same answer; the log distinguishes them at `debug`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not a signed token in compact form (RFC 7515, section 7.1).
    #[error("the token is not three parts of base64url, the first two of them JSON objects")]
    Form,
    /// Its header requires something unsupported.
    #[error("the token's header has a type or a critical extension that is not understood")]
    Header,
    /// Its algorithm is not allowed.
    #[error("the token's algorithm is not among the algorithms of its issuer's entry")]
    Algorithm,
    /// Its issuer is not configured.
    #[error("the token's iss is not among tokens.issuers")]
    Issuer,
    /// A registered claim is missing or has the wrong type.
    #[error("the token's {0} is missing or has the wrong type")]
    Claim(&'static str),
    /// It lists too many agents.
    #[error("the token lists more agents than {}", MAX_AGENTS)]
    Many,
    /// It is for another audience.
    #[error("the token's aud does not name this endpoint or gateway")]
    Audience,
    /// It has expired.
    #[error("the token has expired")]
    Expired,
    /// It is not valid yet.
    #[error("the token is not valid yet")]
    Early,
    /// The issuer has no such key.
    #[error("the issuer has no key with the token's kid that fits its algorithm")]
    Key,
    /// The signature does not verify.
    #[error("the token's signature does not verify")]
    Signature,
    /// The keys of the issuer cannot be fetched, so that the token can be neither accepted nor refused.
    #[error("the issuer's keys cannot be fetched")]
    KeysUnknown,
}
