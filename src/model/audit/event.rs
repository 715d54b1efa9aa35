//! What the audit log says of one request, one call or one end of a stream.

use std::borrow::Cow;

use time::OffsetDateTime;

use super::chain::Digest;
use crate::model::caller::CredentialKind;
use crate::model::client_address::ClientAddress;
use crate::model::ids::{AgentId, KeyId, PrincipalId, SessionUid, TenantId};
use crate::model::limits::RateLimit;
use crate::model::outcome::Outcome;
use crate::model::scope::Revision;

/// Most bytes of what a request calls itself, its client or its agent.
const MOST_NAME: usize = 256;
/// Most bytes of a subject: that of a URI.
const MOST_SUBJECT: usize = 2_048;

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActorKind {
    /// Nobody knows: the credential is not valid, or was not looked at.
    #[default]
    Unknown,
    /// Somebody without a credential.
    Anybody,
    /// An agent's key.
    Agent,
    /// A tenant's owner key.
    Owner,
    /// Whoever has an access token of an issuer.
    Token,
    /// The operator.
    Operator,
}

impl From<CredentialKind> for ActorKind {
    fn from(kind: CredentialKind) -> Self {
        match kind {
            CredentialKind::AgentKey => Self::Agent,
            CredentialKind::OwnerKey => Self::Owner,
            CredentialKind::Token => Self::Token,
        }
    }
}

impl ActorKind {
    /// As it stands in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Anybody => "anybody",
            Self::Agent => "agent",
            Self::Owner => "owner",
            Self::Token => "token",
            Self::Operator => "operator",
        }
    }
}

/// Who asked, and with which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Actor {
    /// What he is.
    pub kind: ActorKind,
    /// Who he is.
    pub principal: Option<PrincipalId>,
    /// His key.
    pub key: Option<KeyId>,
    /// What was set for the key's rate, which bounds the rows of its refusals. Not part of a row.
    pub limits: RateLimit,
}

impl Actor {
    /// Somebody without a credential.
    pub fn anybody() -> Self {
        Self { kind: ActorKind::Anybody, ..Self::default() }
    }

    /// The operator, with one of the operator keys.
    pub fn operator(key: KeyId) -> Self {
        Self { kind: ActorKind::Operator, key: Some(key), ..Self::default() }
    }
}

/// What a client calls itself, bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientName {
    /// Its name.
    pub name: Box<str>,
    /// Its version.
    pub version: Box<str>,
}

impl ClientName {
    /// As much of it as the log keeps.
    pub fn new(name: &str, version: &str) -> Self {
        Self { name: named(name), version: named(version) }
    }
}

/// What changed: hashes of the definition with its contents, or nothing where there was or is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Difference {
    /// Of what was there before.
    pub before: Option<Digest>,
    /// Of what is there now.
    pub after: Option<Digest>,
}

/// One line of the audit log, before it has its place in a chain. It never holds contents, arguments or secrets.
#[derive(Debug, Clone)]
pub struct Event {
    /// When it was made, in whole microseconds.
    pub at: OffsetDateTime,
    /// The request's id.
    pub request: Box<str>,
    /// The trace that the client says the request belongs to.
    pub trace: Option<[u8; 16]>,
    /// The tenant of what was asked for.
    pub tenant: Option<TenantId>,
    /// The agent that was asked.
    pub agent: Option<AgentId>,
    /// The agent as the request names it.
    pub slug: Option<Box<str>>,
    /// Who asked.
    pub actor: Actor,
    /// From where.
    pub client: ClientAddress,
    /// With what, by the client's own word.
    pub client_name: Option<ClientName>,
    /// In which revision of the protocol.
    pub protocol: Option<&'static str>,
    /// In which session.
    pub session: Option<SessionUid>,
    /// For what.
    pub method: Cow<'static, str>,
    /// Of what: a URI, the name of a prompt, a key's id, a slug.
    pub subject: Option<Box<str>>,
    /// How the request or the stream ended.
    pub outcome: Outcome,
    /// The HTTP status of the answer.
    pub status: Option<u16>,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body; none where it is not known when the event is made.
    pub bytes_out: Option<u64>,
    /// The revision that was written or told.
    pub revision: Option<Revision>,
    /// What a change did.
    pub difference: Difference,
}

impl Event {
    /// A request that has just arrived: who asked and what came of it is not known yet.
    pub fn new(
        at: OffsetDateTime,
        request: Box<str>,
        client: ClientAddress,
        method: Cow<'static, str>,
    ) -> Self {
        Self {
            at,
            request,
            trace: None,
            tenant: None,
            agent: None,
            slug: None,
            actor: Actor::default(),
            client,
            client_name: None,
            protocol: None,
            session: None,
            method,
            subject: None,
            outcome: Outcome::Ok,
            status: None,
            micros: 0,
            bytes_in: 0,
            bytes_out: None,
            revision: None,
            difference: Difference::default(),
        }
    }
}

/// As much as the log keeps of a name, an id or a method.
pub fn named(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(MOST_NAME)].into()
}

/// As much as the log keeps of a subject.
pub fn subject(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(MOST_SUBJECT)].into()
}

/// The trace of a `traceparent` header (W3C Trace Context, version 00 or a later one), where it is a valid one.
pub fn trace(traceparent: &[u8]) -> Option<[u8; 16]> {
    let (version, rest) = (traceparent.get(..2)?, traceparent.get(2..)?);
    let lower = |bytes: &[u8]| bytes.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let shaped = rest.len() >= 53 && rest[0] == b'-' && rest[33] == b'-' && rest[50] == b'-';
    let ended =
        if version == b"00" { rest.len() == 53 } else { rest.len() == 53 || rest.get(53) == Some(&b'-') };
    if !(shaped && ended && lower(version) && version != b"ff" && lower(&rest[51..53])) {
        return None;
    }
    let (trace, parent) = (&rest[1..33], &rest[34..50]);
    if !lower(trace) || !lower(parent) || parent.iter().all(|b| *b == b'0') {
        return None;
    }
    let text = std::str::from_utf8(trace).ok()?;
    let id = u128::from_str_radix(text, 16).ok().filter(|id| *id != 0)?;
    Some(id.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::{named, trace};

    #[test]
    fn a_trace_is_taken_from_a_valid_header_only() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let id = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
        assert_eq!(trace(good.as_bytes()), Some(id));
        assert_eq!(trace(format!("01{}-more", &good[2..]).as_bytes()), Some(id));
        for bad in [
            "",
            "00",
            &good[..54],
            &format!("{good}-more"),
            &good.to_uppercase(),
            &good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &good.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &good.replacen("00-", "ff-", 1),
            &good.replace("-01", "-0g"),
            &good.replace("-00f", "_00f"),
        ] {
            assert_eq!(trace(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn what_a_client_says_is_kept_as_far_as_it_is_short() {
        assert_eq!(&*named("curl"), "curl");
        assert_eq!(&*named(&format!("{}ää", "x".repeat(255))), "x".repeat(255));
    }
}
