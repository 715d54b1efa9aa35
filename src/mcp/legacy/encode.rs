//! Results of the legacy era as JSON, without the ids that they answer.

use serde::Serialize;

use crate::mcp::server::{Capabilities, Implementation};
use crate::mcp::subject::{Subject, append};
use crate::mcp::version::ProtocolVersion;
use crate::model::agent::AgentDescription;
use crate::model::fault::Fault;
use crate::model::operation::Outcome;

/// Appends the result of an operation, alike in all revisions of the era.
///
/// # Errors
/// [`Fault::Internal`] where stored text is no text.
pub fn outcome(out: &mut Vec<u8>, outcome: &Outcome, next_cursor: Option<&str>) -> Result<(), Fault> {
    let subject = Subject::of(outcome, next_cursor);
    out.reserve(subject.encoded_len());
    append(out, &subject)
}

/// Appends the result of `tools/list`.
///
/// # Errors
/// As [`outcome`].
pub fn tools(out: &mut Vec<u8>) -> Result<(), Fault> {
    append(out, &Subject::Tools { tools: [] })
}

/// Appends the result of `initialize`.
///
/// # Errors
/// As [`outcome`].
pub fn initialize(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    agent: &AgentDescription,
) -> Result<(), Fault> {
    let result = Initialized {
        protocol_version: version.as_str(),
        capabilities: Capabilities::default(),
        server_info: Implementation::of(agent, version.knows_titles()),
        instructions: agent.instructions.as_deref(),
    };
    append(out, &result)
}

/// The result of `ping`.
pub const EMPTY: &[u8] = b"{}";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Initialized<'a> {
    protocol_version: &'static str,
    capabilities: Capabilities,
    server_info: Implementation<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}
