//! How a server presents itself: its implementation and what it is capable of.

use serde::Serialize;

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

/// What is declared to every client: only what is served.
#[derive(Debug, Default, Serialize)]
pub(super) struct Capabilities {
    resources: Empty,
    tools: Empty,
}

/// `{}`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Empty {}
