//! What commands on resources, resource templates and prompts share.

use clap::Args;
use reqwest::Method;
use serde::Serialize;

use super::admin::Admin;
use super::format::{Kind, OutputArgs};
use super::object::{BodyFile, ObjectMembers, Objects, encoded, request};
use super::output::Failure;
use super::sources::Sources;
use crate::model::ids::Slug;

/// A kind of definition of an agent.
#[derive(Debug)]
pub(super) struct DefinitionKind {
    pub(super) kind: Kind,
    /// The list of the kind, in paths.
    pub(super) list: &'static str,
    /// The parameter of the query that holds the key; `None` for a segment of the path.
    pub(super) parameter: Option<&'static str>,
}

/// A definition of an agent.
#[derive(Debug, Args)]
pub(super) struct Addressed {
    /// The agent.
    #[arg(long, value_parser = Slug::parse_agent)]
    pub(super) agent: Slug,
    /// What identifies it: the URI of a resource, the pattern of a template, the name of a prompt or
    /// mount.
    pub(super) id: String,
}

/// The members that all definitions have.
#[derive(Debug, Args, Serialize)]
pub(super) struct Flags {
    /// Its title for people.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// Its description.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// A label: only callers who have one of its labels see it. Replaces its labels; can be repeated.
    #[arg(long = "label", value_name = "LABEL")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
}

/// The members that resources and resource templates have besides.
#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NamedFlags {
    /// Its name.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The MIME type of its content.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    common: Flags,
}

impl DefinitionKind {
    /// The path of all definitions of the kind.
    fn list_path(&self, agent: &Slug) -> String {
        format!("/agents/{agent}/{}", self.list)
    }

    /// The path of a definition.
    pub(super) fn path(&self, Addressed { agent, id }: &Addressed) -> String {
        match self.parameter {
            Some(parameter) => format!("{}?{parameter}={}", self.list_path(agent), encoded(id)),
            None => format!("{}/{}", self.list_path(agent), encoded(id)),
        }
    }

    /// Calls about definitions of the kind.
    pub(super) fn objects(&self, sources: &Sources<'_>, output: OutputArgs) -> Result<Objects<'_>, Failure> {
        Ok(Objects { admin: Admin::of(sources)?, kind: &self.kind, output })
    }

    /// Prints the definitions of an agent.
    pub(super) fn list(
        &self,
        sources: &Sources<'_>,
        output: OutputArgs,
        agent: &Slug,
    ) -> Result<(), Failure> {
        self.objects(sources, output)?.list(&self.list_path(agent))
    }

    /// Prints a definition.
    pub(super) fn get(
        &self,
        sources: &Sources<'_>,
        output: OutputArgs,
        it: &Addressed,
    ) -> Result<(), Failure> {
        self.objects(sources, output)?.get(self.path(it))
    }

    /// Creates a definition, which must not exist.
    pub(super) fn create(
        &self,
        sources: &Sources<'_>,
        output: OutputArgs,
        it: &Addressed,
        members: &ObjectMembers,
    ) -> Result<(), Failure> {
        let mut call = request(Method::PUT, self.path(it), Some(members))?;
        call.condition = Some(("if-none-match", "*".to_owned()));
        self.objects(sources, output)?.write("created", &it.id, &call)
    }

    /// Changes members of a definition; the others stay as they are.
    pub(super) fn update(
        &self,
        sources: &Sources<'_>,
        output: OutputArgs,
        it: &Addressed,
        changed: &ObjectMembers,
    ) -> Result<(), Failure> {
        self.objects(sources, output)?.replace(self.path(it), &it.id, |members| members.replace_with(changed))
    }

    /// Deletes a definition.
    pub(super) fn delete(
        &self,
        sources: &Sources<'_>,
        output: OutputArgs,
        it: &Addressed,
    ) -> Result<(), Failure> {
        let call = request(Method::DELETE, self.path(it), None)?;
        self.objects(sources, output)?.write("deleted", &it.id, &call)
    }
}

/// The members of a file, replaced by those of flags.
pub(super) fn members(body: BodyFile, flags: &impl Serialize) -> Result<ObjectMembers, Failure> {
    let mut members = body.members()?;
    members.replace_with(flags)?;
    Ok(members)
}
