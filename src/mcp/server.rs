//! How a server presents itself: its implementation and what it is capable of.

use serde::Serialize;

use super::version::ProtocolVersion;
use crate::model::agent::AgentDescription;

/// The `Implementation` of the specification: the agent by name, the gateway by version.
#[derive(Debug, Serialize)]
pub(super) struct Implementation<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    version: &'static str,
}

impl<'a> Implementation<'a> {
    /// Presents an agent, with its title where the revision in use knows titles.
    pub(super) fn of(agent: &'a AgentDescription, knows_titles: bool) -> Self {
        let title = agent.title.as_deref().filter(|_| knows_titles);
        Self { name: &agent.name, title, version: env!("CARGO_PKG_VERSION") }
    }
}

/// What is declared to a client: only what is served.
#[derive(Debug, Serialize)]
pub(super) struct Capabilities {
    resources: Empty,
    prompts: Empty,
    #[serde(skip_serializing_if = "Option::is_none")]
    completions: Option<Empty>,
    tools: Empty,
}

impl Capabilities {
    /// What is served in a revision, as far as it has a name for it there.
    pub(super) fn of(version: ProtocolVersion) -> Self {
        let completions = version.knows_completions().then_some(Empty {});
        Self { resources: Empty {}, prompts: Empty {}, completions, tools: Empty {} }
    }
}

/// `{}`.
#[derive(Debug, Serialize)]
struct Empty {}
