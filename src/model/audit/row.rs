//! A row of the audit log as returned by the administration API.

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use uuid::Uuid;

use super::digest::Digest;
use super::encoding::VERSION;
use crate::model::ids::{AgentId, KeyId, TenantId};

/// A row of the audit log.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = AuditRow)]
#[serde(rename_all = "camelCase")]
pub struct AuditRow {
    /// Version of the encoding that is hashed: 1, plus 1 if the row is `hidden`, plus 2 if it names a `connection`.
    pub version: i16,
    /// Whether the request was refused since labels hide what it names from the caller. Only the owner and the operator
    /// are shown it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Chain of the row.
    pub chain: Uuid,
    /// Number of the row in its chain, from 1.
    pub seq: i64,
    /// When the event was created.
    #[serde(serialize_with = "micros")]
    pub at: OffsetDateTime,
    /// Id of the request.
    pub request_id: String,
    /// Trace id of the request, as sent by the client.
    pub trace_id: Option<String>,
    /// Tenant of the subject of the request.
    pub tenant_id: Option<Uuid>,
    /// Agent of the request.
    pub agent_id: Option<Uuid>,
    /// Slug of the agent as named in the request.
    pub agent: Option<String>,
    /// Identity of the caller.
    pub principal_id: Option<Uuid>,
    /// Kind of the caller: `operator`, `owner`, `agent`, `token`, `anybody`, or `unknown`.
    pub principal: String,
    /// Key used.
    pub key_id: Option<Uuid>,
    /// Address of the client.
    pub client: String,
    /// Name of the client, as sent by it.
    pub client_name: Option<String>,
    /// Version of the client, as sent by it.
    pub client_version: Option<String>,
    /// Protocol revision.
    pub protocol_version: Option<String>,
    /// Session of the request.
    pub session_id: Option<Uuid>,
    /// MCP method, or method and path of the administration API.
    pub method: String,
    /// Subject of the request.
    pub subject: Option<String>,
    /// The connection that content was taken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// `ok`, the name of the fault, or how a stream ended.
    pub outcome: String,
    /// HTTP status of the response.
    pub status: Option<i16>,
    /// Duration in microseconds.
    pub micros: i64,
    /// Bytes of the request body.
    pub bytes_in: i64,
    /// Bytes of the response body, if known.
    pub bytes_out: Option<i64>,
    /// The revision that was written or served.
    pub revision: Option<i64>,
    /// Hash of the definition and its content before a change.
    #[schema(value_type = Option<String>)]
    pub before: Option<Digest>,
    /// Hash of the definition and its content after a change.
    #[schema(value_type = Option<String>)]
    pub after: Option<Digest>,
    /// Hash of the previous row. Only the owner and the operator are shown the hashes, which tell what is `hidden`.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<Digest>,
    /// Hash of this row.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<Digest>,
}

/// Selects rows of agents, by identity or by the slug in the request.
#[derive(Debug, Clone, Default)]
pub struct AgentFilter {
    /// Identities of the agents.
    pub ids: Vec<AgentId>,
    /// The slug in the request, whether or not an agent has it.
    pub name: Option<String>,
}

impl AgentFilter {
    /// Identifies the filter, for cursors: equal filters have equal fingerprints.
    pub fn fingerprint(&self) -> Uuid {
        let ids = self.ids.iter().flat_map(|id| id.0.into_bytes());
        let bytes: Vec<u8> = ids.chain(self.name.iter().flat_map(|name| name.bytes())).collect();
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&Digest::of(&bytes).0[..16]);
        Uuid::from_bytes(fingerprint)
    }
}

/// A filter of rows; absent members match every row.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Rows of one tenant.
    pub tenant: Option<TenantId>,
    /// Rows of some agents.
    pub agent: Option<AgentFilter>,
    /// Rows of one key.
    pub key: Option<KeyId>,
    /// Rows of one method.
    pub method: Option<String>,
    /// Rows of one outcome.
    pub outcome: Option<String>,
    /// Rows of one request.
    pub request: Option<String>,
    /// Rows at or after this time.
    pub from: Option<OffsetDateTime>,
    /// Rows before this time.
    pub to: Option<OffsetDateTime>,
}

impl AuditFilter {
    /// Whether every row of the period matches.
    pub fn matches_every_row(&self) -> bool {
        let Self { tenant, agent, key, method, outcome, request, from: _, to: _ } = self;
        let by_id = tenant.is_some() || agent.is_some() || key.is_some() || request.is_some();
        !by_id && method.is_none() && outcome.is_none()
    }
}

/// The position of a row in the order of the log, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditPosition {
    /// When the event was created.
    pub at: OffsetDateTime,
    /// Chain of the row.
    pub chain: Uuid,
    /// Number of the row in its chain.
    pub seq: i64,
}

impl AuditRow {
    /// The row without what only the owner and the operator are shown: a hash would tell which version was hashed.
    #[must_use]
    pub fn without_hidden(self) -> Self {
        Self { version: VERSION, hidden: false, previous: None, hash: None, ..self }
    }

    /// The position of this row.
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
    /// Parses the `Display` form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let at = OffsetDateTime::from_unix_timestamp_nanos(parts.next()?.parse().ok()?).ok()?;
        Some(Self { at, chain: parts.next()?.parse().ok()?, seq: parts.next()?.parse().ok()? })
    }
}

/// Formats a time as RFC 3339 with microseconds.
pub fn timestamp(at: OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    let (date, time) = (at.date(), at.time());
    format!("{date}T{:02}:{:02}:{:02}.{:06}Z", time.hour(), time.minute(), time.second(), time.microsecond())
}

fn micros<S: Serializer>(at: &OffsetDateTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&timestamp(*at))
}
