//! A line of the audit log as people read it.

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use uuid::Uuid;

use super::chain::Digest;
use crate::model::ids::{AgentId, KeyId, TenantId};

/// A row of the log.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = AuditRow)]
#[serde(rename_all = "camelCase")]
pub struct AuditRow {
    /// The version of the encoding under which it is hashed.
    pub version: i16,
    /// Its chain.
    pub chain: Uuid,
    /// Its place in the chain, from 1.
    pub seq: i64,
    /// When it was made.
    #[serde(serialize_with = "micros")]
    pub at: OffsetDateTime,
    /// The request's id.
    pub request_id: String,
    /// The trace that the client says it belongs to.
    pub trace_id: Option<String>,
    /// The tenant of what was asked for.
    pub tenant_id: Option<Uuid>,
    /// The agent that was asked.
    pub agent_id: Option<Uuid>,
    /// The agent as the request names it.
    pub agent: Option<String>,
    /// Who asked.
    pub principal_id: Option<Uuid>,
    /// What he is: `operator`, `owner`, `agent`, `token`, `anybody`, or `unknown`.
    pub principal: String,
    /// His key.
    pub key_id: Option<Uuid>,
    /// His address.
    pub client: String,
    /// What his client calls itself.
    pub client_name: Option<String>,
    /// And which version of it.
    pub client_version: Option<String>,
    /// The revision of the protocol.
    pub protocol_version: Option<String>,
    /// The session.
    pub session_id: Option<Uuid>,
    /// What was asked: a method of MCP, or method and path of the admin surface.
    pub method: String,
    /// Of what.
    pub subject: Option<String>,
    /// `ok`, the name of what went wrong, or how a stream ended.
    pub outcome: String,
    /// The HTTP status.
    pub status: Option<i16>,
    /// How long it took, in microseconds.
    pub micros: i64,
    /// Bytes of the request's body.
    pub bytes_in: i64,
    /// Bytes of the answer's body, where they were known.
    pub bytes_out: Option<i64>,
    /// The revision that was written or told.
    pub revision: Option<i64>,
    /// The hash of what was there before a change.
    #[schema(value_type = Option<String>)]
    pub before: Option<Digest>,
    /// The hash of what is there after it.
    #[schema(value_type = Option<String>)]
    pub after: Option<Digest>,
    /// The hash of the row before.
    #[schema(value_type = String)]
    pub previous: Digest,
    /// Its own.
    #[schema(value_type = String)]
    pub hash: Digest,
}

/// Rows about agents: those that are known to be about one of them, and those whose request names it so.
#[derive(Debug, Clone, Default)]
pub struct AgentFilter {
    /// Who they are.
    pub ids: Vec<AgentId>,
    /// What the request calls it, whoever that is and whether it is there or not.
    pub name: Option<String>,
}

impl AgentFilter {
    /// The same for the same agents alone.
    pub fn fingerprint(&self) -> Uuid {
        let ids = self.ids.iter().flat_map(|id| id.0.into_bytes());
        let bytes: Vec<u8> = ids.chain(self.name.iter().flat_map(|name| name.bytes())).collect();
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&Digest::of(&bytes).0[..16]);
        Uuid::from_bytes(fingerprint)
    }
}

/// What is asked of the log; what is left out does not matter.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// One tenant.
    pub tenant: Option<TenantId>,
    /// Some agents.
    pub agent: Option<AgentFilter>,
    /// One key.
    pub key: Option<KeyId>,
    /// One method.
    pub method: Option<String>,
    /// One outcome.
    pub outcome: Option<String>,
    /// Not before.
    pub from: Option<OffsetDateTime>,
    /// Before.
    pub to: Option<OffsetDateTime>,
}

/// Where a row stands among all, the newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditPosition {
    /// When it was made.
    pub at: OffsetDateTime,
    /// Its chain.
    pub chain: Uuid,
    /// Its place there.
    pub seq: i64,
}

impl AuditRow {
    /// Where it stands.
    pub fn position(&self) -> AuditPosition {
        AuditPosition { at: self.at, chain: self.chain, seq: self.seq }
    }
}

impl std::fmt::Display for AuditPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.at.unix_timestamp_nanos(), self.chain, self.seq)
    }
}

impl AuditPosition {
    /// Reads what was written of one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let at = OffsetDateTime::from_unix_timestamp_nanos(parts.next()?.parse().ok()?).ok()?;
        Some(Self { at, chain: parts.next()?.parse().ok()?, seq: parts.next()?.parse().ok()? })
    }
}

/// As RFC 3339 has it, always with six digits behind the second.
pub fn timestamp(at: OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    let (date, time) = (at.date(), at.time());
    format!("{date}T{:02}:{:02}:{:02}.{:06}Z", time.hour(), time.minute(), time.second(), time.microsecond())
}

fn micros<S: Serializer>(at: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&timestamp(*at))
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("a hash has 64 hexadecimal digits"))
    }
}
