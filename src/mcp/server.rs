//! The description of a server for its clients: `Implementation` and capabilities.

use serde::Serialize;

use super::version::ProtocolVersion;
use crate::model::agent::AgentDescription;
use crate::model::method::Era;

/// The `Implementation` of the specification: the agent by name, the gateway by version.
#[derive(Debug, Serialize)]
pub(super) struct Implementation<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    version: &'static str,
}

impl<'a> Implementation<'a> {
    /// Describes an agent, with its title if the revision has titles.
    pub(super) fn of(agent: &'a AgentDescription, knows_titles: bool) -> Self {
        let title = agent.title.as_deref().filter(|_| knows_titles);
        Self { name: &agent.name, title, version: env!("CARGO_PKG_VERSION") }
    }
}

/// The declared capabilities: only what the gateway serves.
#[derive(Debug, Serialize)]
pub(super) struct Capabilities {
    resources: Resources,
    prompts: Prompts,
    #[serde(skip_serializing_if = "Option::is_none")]
    completions: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logging: Option<Empty>,
    tools: Tools,
    extensions: Extensions,
}

/// Extensions of the specification.
#[derive(Debug, Serialize)]
struct Extensions {
    /// SEP-2640.
    #[serde(rename = "io.modelcontextprotocol/skills")]
    skills: Skills,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Skills {
    directory_read: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Resources {
    subscribe: bool,
    list_changed: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Prompts {
    list_changed: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools {
    list_changed: bool,
}

impl Capabilities {
    /// The capabilities that a revision can declare. Log messages exist only in sessions.
    pub(super) fn of(version: ProtocolVersion) -> Self {
        Self {
            resources: Resources { subscribe: true, list_changed: true },
            prompts: Prompts { list_changed: true },
            completions: version.knows_completions().then_some(Empty {}),
            logging: (version.era() == Era::Legacy).then_some(Empty {}),
            tools: Tools { list_changed: true },
            extensions: Extensions { skills: Skills { directory_read: true } },
        }
    }
}

/// `{}`.
#[derive(Debug, Serialize)]
struct Empty {}
