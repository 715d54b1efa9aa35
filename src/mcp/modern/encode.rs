//! Results of the modern era as JSON, without the ids that they answer.

use serde::Serialize;

use crate::mcp::server::{Capabilities, Implementation};
use crate::mcp::subject::{Subject, append};
use crate::mcp::version::ProtocolVersion;
use crate::model::agent::{Access, AgentDescription};
use crate::model::fault::Fault;
use crate::model::operation::Outcome;

/// What every result says besides its subject. Whoever keeps a result forgets it when any of this changes.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The agent that answers.
    pub agent: &'a AgentDescription,
    /// Who may read it: what everybody may read, shared caches may keep.
    pub access: Access,
    /// For how long a client may keep the result, in milliseconds.
    pub ttl_ms: u64,
}

/// Appends the result of an operation.
///
/// # Errors
/// [`Fault::Internal`] where stored text is no text.
pub fn outcome(
    out: &mut Vec<u8>,
    outcome: &Outcome,
    next_cursor: Option<&str>,
    around: Surroundings<'_>,
) -> Result<(), Fault> {
    let subject = Subject::of(outcome, next_cursor);
    out.reserve(subject.encoded_len());
    append(out, &around.complete(subject))
}

/// Appends the result of `tools/list`.
///
/// # Errors
/// As [`outcome`].
pub fn tools(out: &mut Vec<u8>, around: Surroundings<'_>) -> Result<(), Fault> {
    append(out, &around.complete(Subject::Tools { tools: [] }))
}

/// Appends the result of `server/discover`.
///
/// # Errors
/// As [`outcome`].
pub fn discover(out: &mut Vec<u8>, around: Surroundings<'_>) -> Result<(), Fault> {
    let discovery = Discovery {
        supported_versions: ProtocolVersion::SUPPORTED.map(ProtocolVersion::as_str),
        capabilities: Capabilities::default(),
        instructions: around.agent.instructions.as_deref(),
    };
    append(out, &around.complete(discovery))
}

impl<'a> Surroundings<'a> {
    fn complete<S: Serialize>(self, subject: S) -> Complete<'a, S> {
        let cache_scope = match self.access {
            Access::Public => "public",
            Access::Key => "private",
        };
        let titles = ProtocolVersion::V2026_07_28.knows_titles();
        let meta = Meta { server_info: Implementation::of(self.agent, titles) };
        Complete { result_type: "complete", subject, ttl_ms: self.ttl_ms, cache_scope, meta }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Complete<'a, S> {
    result_type: &'static str,
    #[serde(flatten)]
    subject: S,
    ttl_ms: u64,
    cache_scope: &'static str,
    #[serde(rename = "_meta")]
    meta: Meta<'a>,
}

#[derive(Serialize)]
struct Meta<'a> {
    #[serde(rename = "io.modelcontextprotocol/serverInfo")]
    server_info: Implementation<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Discovery<'a> {
    supported_versions: [&'static str; ProtocolVersion::SUPPORTED.len()],
    capabilities: Capabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}
