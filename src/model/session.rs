//! Sessions of the legacy protocol revisions: what a client negotiated, and its subscriptions.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rand::CryptoRng;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::client_address::ClientAddress;
use super::ids::{AgentId, PrincipalId, ResourceUri, SessionUid, TenantId};
use super::label::LabelsDigest;
use super::scope::Revision;

/// 43 characters of base64url have 256 bits.
const LENGTH: usize = 43;

/// The session id of a client: 256 random bits in base64url. It is a secret, since it gives access to the
/// session: only its hash is stored, and it is zeroed when dropped.
#[derive(Clone)]
pub struct SessionId(Zeroizing<String>);

impl SessionId {
    /// Generates an id of 256 random bits.
    pub fn generate(random: &mut impl CryptoRng) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        random.fill_bytes(bytes.as_mut_slice());
        Self(Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(bytes.as_slice())))
    }

    /// Parses a text in the format of an id.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_one = text.len() == LENGTH && text.bytes().all(fits);
        is_one.then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// The id, to be sent to the client only.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The SHA-256 of the id, which is stored instead of it.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The UUID of the session: the first half of the hash.
    pub fn uid(&self) -> SessionUid {
        uid_of(&self.hash())
    }
}

/// The UUID of the session whose id has this hash.
pub fn uid_of(hash: &[u8; 32]) -> SessionUid {
    let (half, _) = hash.split_at(16);
    SessionUid(Uuid::from_slice(half).unwrap_or_default())
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(…)")
    }
}

/// The holder for which sessions are counted: a principal or, without a credential, an address. Limits of one
/// holder do not affect others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionHolder(pub Uuid);

impl SessionHolder {
    /// The holder of sessions opened without a credential: one per network.
    pub fn address(client: ClientAddress) -> Self {
        let named = match client.network() {
            ClientAddress::Known(address) => format!("address {address}"),
            ClientAddress::Unknown { proxy } => format!("unknown behind {proxy}"),
        };
        let digest: [u8; 32] = Sha256::digest(named).into();
        let (half, _) = digest.split_at(16);
        Self(Uuid::from_slice(half).unwrap_or_default())
    }
}

impl From<PrincipalId> for SessionHolder {
    fn from(principal: PrincipalId) -> Self {
        Self(principal.0)
    }
}

/// Severity of a log message (RFC 5424).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Debugging information.
    Debug,
    /// Normal operation.
    Info,
    /// Normal but significant.
    Notice,
    /// Potential problems.
    Warning,
    /// Errors.
    Error,
    /// Failure of a component.
    Critical,
    /// Immediate action required.
    Alert,
    /// The system is unusable.
    Emergency,
}

impl LogLevel {
    const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The value that is sent and stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// Parses the value that is sent or stored.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

/// A subscription of a session to a URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSubscription {
    /// The resource, or a URI served by a template.
    pub uri: ResourceUri,
    /// The revision of the agent's scope when it was added; later changes are sent.
    pub since: Revision,
}

/// A session at one revision of its scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Identity of the session.
    pub uid: SessionUid,
    /// Tenant of the agent.
    pub tenant: TenantId,
    /// Agent of the session.
    pub agent: AgentId,
    /// Principal that opened it; `None` for an anonymous caller of a public agent.
    pub principal: Option<PrincipalId>,
    /// The negotiated protocol revision.
    pub version: String,
    /// Name of the client, as sent by it.
    pub client_name: String,
    /// Version of the client, as sent by it.
    pub client_version: String,
    /// Minimum level of log messages to send, if set.
    pub level: Option<LogLevel>,
    /// Number of streams opened so far; only the newest one is served.
    pub streams_opened: i64,
    /// The revision of the agent's scope when the session was opened.
    pub since: Revision,
    /// The labels of the caller that opened it; `None` for a session of a gateway that did not know of labels.
    pub labels: Option<LabelsDigest>,
    /// Its subscriptions, in byte order of the URIs.
    pub subscriptions: Vec<ResourceSubscription>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn id(seed: u64) -> SessionId {
        SessionId::generate(&mut StdRng::seed_from_u64(seed))
    }

    proptest! {
        #[test]
        fn generated_id_parses_to_itself_and_has_no_debug_output(seed: u64) {
            let made = id(seed);
            let read = SessionId::parse(made.reveal()).unwrap();
            prop_assert_eq!(read.reveal(), made.reveal());
            prop_assert_eq!(read.hash(), made.hash());
            prop_assert_eq!(read.reveal().len(), 43);
            prop_assert_eq!(format!("{made:?}"), "SessionId(…)");
        }
    }

    #[test]
    fn malformed_ids_are_rejected() {
        let good = id(1);
        let good = good.reveal();
        for bad in
            ["", &good[1..], &format!("{good}A"), &format!("{}=", &good[1..]), &format!("{}é", &good[2..])]
        {
            assert!(SessionId::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn uuid_is_the_first_half_of_the_hash() {
        let hash: [u8; 32] = Sha256::digest(id(7).reveal()).into();
        assert_eq!(id(7).hash(), hash);
        assert_eq!(id(7).uid().0.as_bytes()[..], hash[..16]);
    }

    #[test]
    fn levels_are_ordered_and_parse_to_themselves() {
        for pair in LogLevel::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        let read: Vec<_> = LogLevel::ALL.iter().filter_map(|level| LogLevel::parse(level.as_str())).collect();
        assert_eq!(read, LogLevel::ALL);
        assert_eq!(LogLevel::parse("fatal"), None);
    }
}
