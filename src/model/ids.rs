//! Identifiers: UUIDs, which identify permanently, and slugs, the names in URLs.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uid {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uid! {
    /// Identifies a tenant. A tenant re-created under the same slug has a different id.
    TenantId
}
uid! {
    /// Identifies an agent. An agent re-created under the same slug has a different id.
    AgentId
}
uid! {
    /// Identifies a key.
    KeyId
}
uid! {
    /// Identifies a principal: a key and its successors by rotation have the same principal.
    PrincipalId
}
uid! {
    /// Identifies a session. The client's session id cannot be derived from it.
    SessionUid
}

/// An agent and the tenant that it belongs to, which together identify the rows of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentRef {
    /// The tenant.
    pub tenant: TenantId,
    /// The agent.
    pub uid: AgentId,
}

/// Slugs that agents cannot have, since they are paths of the gateway.
const RESERVED: [&str; 6] = ["admin", "healthz", "readyz", "metrics", "well-known", "assets"];

/// The name of a tenant or an agent in URLs: `^[a-z0-9][a-z0-9_-]{0,62}$`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Slug(Arc<str>);

/// Why a text is not a slug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SlugError {
    /// It does not match the pattern.
    #[error("must match ^[a-z0-9][a-z0-9_-]{{0,62}}$")]
    Form,
    /// It is a path of the gateway.
    #[error("is reserved")]
    Reserved,
}

impl Slug {
    /// Parses the slug of a tenant.
    ///
    /// # Errors
    /// If the text does not match the pattern.
    pub fn parse(text: &str) -> Result<Self, SlugError> {
        if Self::is_slug(text) { Ok(Self(text.into())) } else { Err(SlugError::Form) }
    }

    /// Parses the slug of an agent.
    ///
    /// # Errors
    /// If the text does not match the pattern or is reserved.
    pub fn parse_agent(text: &str) -> Result<Self, SlugError> {
        if RESERVED.contains(&text) { Err(SlugError::Reserved) } else { Self::parse(text) }
    }

    /// Whether a text matches the pattern of slugs.
    pub fn is_slug(text: &str) -> bool {
        let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        matches!(text.len(), 1..=63)
            && text.as_bytes().first().is_some_and(plain)
            && text.bytes().all(|b| plain(&b) || matches!(b, b'_' | b'-'))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Slug {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Slug, SlugError};

    #[test]
    fn slug_matches_the_pattern() {
        for good in ["a", "0", "research", "a-b_c", &"a".repeat(63)] {
            assert_eq!(Slug::parse_agent(good).map(|s| s.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "_a", "A", "a.b", "a b", "ä", "a\n", &"a".repeat(64)] {
            assert_eq!(Slug::parse_agent(bad), Err(SlugError::Form), "{bad:?}");
        }
    }

    #[test]
    fn agent_slug_must_not_be_a_path_of_the_gateway() {
        for reserved in ["admin", "healthz", "readyz", "metrics", "well-known", "assets"] {
            assert_eq!(Slug::parse_agent(reserved), Err(SlugError::Reserved));
        }
    }
}
