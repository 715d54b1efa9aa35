//! Sessions of the legacy revisions: what a client negotiated, and what it wants to be told of.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rand::CryptoRng;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::client_address::ClientAddress;
use super::ids::{AgentId, PrincipalId, SessionUid, TenantId};
use super::scope::Revision;
use super::uri::ResourceUri;

/// 43 characters of 64 hold 256 bits.
const LENGTH: usize = 43;

/// What a client shows to take part in a session: 256 random bits in base64url. Whoever has it can try to, so it is a
/// secret: only its hash is stored, and it is wiped from memory when dropped.
#[derive(Clone)]
pub struct SessionId(Zeroizing<String>);

impl SessionId {
    /// Makes an id of 256 random bits.
    pub fn generate(random: &mut impl CryptoRng) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        random.fill_bytes(bytes.as_mut_slice());
        Self(Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(bytes.as_slice())))
    }

    /// Reads what has the shape of an id.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_one = text.len() == LENGTH && text.bytes().all(fits);
        is_one.then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// The text, to be shown to the client and to nobody else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is stored in its place: the SHA-256 of its text.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The session that it would be the id of: the first half of its hash.
    pub fn uid(&self) -> SessionUid {
        uid_of(&self.hash())
    }
}

/// The session whose id has this hash.
pub fn uid_of(hash: &[u8; 32]) -> SessionUid {
    let (half, _) = hash.split_at(16);
    SessionUid(Uuid::from_slice(half).unwrap_or_default())
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(…)")
    }
}

/// Whom sessions are accounted to: a principal or, without a credential, an address. No holder's sessions end another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionHolder(pub Uuid);

impl SessionHolder {
    /// The holder of what is opened without a credential: the same for all addresses of one network.
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

/// How grave a message of the gateway's is; a client asks for those from one level on (RFC 5424).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// What helps to find a fault.
    Debug,
    /// What went as it should.
    Info,
    /// What went as it should and is worth a look.
    Notice,
    /// What may go wrong.
    Warning,
    /// What went wrong.
    Error,
    /// A part that failed.
    Critical,
    /// What must be seen to at once.
    Alert,
    /// Nothing works.
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

    /// As it is sent and stored.
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

    /// Reads what is sent or stored.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

/// A resource that a session wants to be told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The resource, or what a template makes of this URI.
    pub uri: ResourceUri,
    /// The revision of the agent's scope when it was taken up: what changed the resource later is told.
    pub since: Revision,
}

/// A session as it is at one revision of its scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Its identity.
    pub uid: SessionUid,
    /// The agent's tenant.
    pub tenant: TenantId,
    /// The agent that it is a session with.
    pub agent: AgentId,
    /// Who opened it; `None` for anybody at a public agent.
    pub principal: Option<PrincipalId>,
    /// The negotiated revision of the protocol.
    pub version: String,
    /// What the client calls itself.
    pub client_name: String,
    /// Which version of itself the client says that it is.
    pub client_version: String,
    /// From which level on the client wants to see messages, if it said so.
    pub level: Option<LogLevel>,
    /// How many streams it has had; the newest is the one that delivers.
    pub epoch: i64,
    /// The revision of the agent's scope when it was opened.
    pub since: Revision,
    /// What it wants to be told of, in byte order of the URIs.
    pub subscriptions: Vec<Subscription>,
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
        fn a_generated_id_parses_to_itself_and_shows_itself_to_nobody(seed: u64) {
            let made = id(seed);
            let read = SessionId::parse(made.reveal()).unwrap();
            prop_assert_eq!(read.reveal(), made.reveal());
            prop_assert_eq!(read.hash(), made.hash());
            prop_assert_eq!(read.reveal().len(), 43);
            prop_assert_eq!(format!("{made:?}"), "SessionId(…)");
        }
    }

    #[test]
    fn what_cannot_be_an_id_is_none() {
        let good = id(1);
        let good = good.reveal();
        for bad in
            ["", &good[1..], &format!("{good}A"), &format!("{}=", &good[1..]), &format!("{}é", &good[2..])]
        {
            assert!(SessionId::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn the_uid_is_the_first_half_of_the_hash() {
        let hash: [u8; 32] = Sha256::digest(id(7).reveal()).into();
        assert_eq!(id(7).hash(), hash);
        assert_eq!(id(7).uid().0.as_bytes()[..], hash[..16]);
    }

    #[test]
    fn levels_are_ordered_and_read_back() {
        for pair in LogLevel::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        let read: Vec<_> = LogLevel::ALL.iter().filter_map(|level| LogLevel::parse(level.as_str())).collect();
        assert_eq!(read, LogLevel::ALL);
        assert_eq!(LogLevel::parse("fatal"), None);
    }
}
