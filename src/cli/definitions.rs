//! What commands on resources, resource templates, prompts and mounts share.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Serialize;

use super::admin::{Admin, Request};
use super::format::{Kind, OutputArgs};
use super::invocation::Invocation;
use super::object::{BodyFile, ObjectMembers, Objects, encoded};
use super::output::Failure;
use crate::model::ids::Slug;

/// A kind of definition of an agent.
#[derive(Debug)]
pub(super) struct DefinitionKind {
    pub(super) kind: Kind,
    /// Its name in the help, singular.
    pub(super) noun: &'static str,
    /// What the help of `get` adds: what is printed with a definition.
    pub(super) printed_with: &'static str,
    /// What the help of `create` adds: what a definition is created from.
    pub(super) created_from: &'static str,
    /// The list of the kind, in paths.
    pub(super) list: &'static str,
    /// The parameter of the query that holds the key; `None` for a segment of the path.
    pub(super) parameter: Option<&'static str>,
}

/// The flags that set members of a kind of definition.
pub(super) trait DefinitionFlags: Args + Serialize {
    const KIND: DefinitionKind;

    /// Sets the members that were given.
    fn set(&self, members: &mut ObjectMembers) -> Result<(), Failure> {
        members.replace_with(self)
    }

    /// The members of a file, replaced by those of the flags.
    fn merge_into(&self, body: BodyFile) -> Result<ObjectMembers, Failure> {
        let mut members = body.members()?;
        self.set(&mut members)?;
        Ok(members)
    }
}

/// The commands that every kind of definition has.
#[derive(Debug, Subcommand)]
pub(super) enum DefinitionCommand<F: DefinitionFlags> {
    #[command(about = format!("List the {}s of an agent", F::KIND.noun))]
    List {
        /// The agent.
        #[arg(long, value_parser = Slug::parse_agent)]
        agent: Slug,
    },
    #[command(about = format!("Print a {}{}", F::KIND.noun, F::KIND.printed_with))]
    Get(Addressed),
    #[command(about = format!("Create a {}{}", F::KIND.noun, F::KIND.created_from))]
    Create {
        #[command(flatten)]
        it: Addressed,
        #[command(flatten)]
        flags: F,
        #[command(flatten)]
        body: BodyFile,
    },
    #[command(about = format!("Change a {}; what is not given stays as it is", F::KIND.noun))]
    Update {
        #[command(flatten)]
        it: Addressed,
        #[command(flatten)]
        flags: F,
        #[command(flatten)]
        body: BodyFile,
    },
    #[command(about = format!("Delete a {}", F::KIND.noun))]
    Delete(Addressed),
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
    ///
    /// # Errors
    /// If the key would be a segment that clients remove from a URL, percent-encoded too (URL standard, section 4.4): the
    /// call would be about something else.
    pub(super) fn path(&self, Addressed { agent, id }: &Addressed) -> Result<String, Failure> {
        match self.parameter {
            Some(parameter) => Ok(format!("{}?{parameter}={}", self.list_path(agent), encoded(id))),
            None if matches!(id.as_str(), "." | "..") => Err(Failure::Usage(format!(
                "`{id}` is not the name of a {}: a URL cannot contain it",
                self.noun
            ))),
            None => Ok(format!("{}/{}", self.list_path(agent), encoded(id))),
        }
    }

    /// Calls about definitions of the kind.
    pub(super) fn objects(
        &self,
        invocation: &Invocation<'_>,
        output: OutputArgs,
    ) -> Result<Objects<'_>, Failure> {
        Ok(Objects { admin: Admin::of(invocation)?, kind: &self.kind, output })
    }
}

impl<F: DefinitionFlags> DefinitionCommand<F> {
    pub(super) fn run(self, invocation: &Invocation<'_>, output: OutputArgs) -> Result<(), Failure> {
        let kind = F::KIND;
        let objects = || kind.objects(invocation, output);
        match self {
            Self::List { agent } => objects()?.list(&kind.list_path(&agent)),
            Self::Get(it) => objects()?.get(kind.path(&it)?),
            Self::Create { it, flags, body } => {
                // A definition that exists is not replaced.
                let condition = Some(("if-none-match", "*".to_owned()));
                let call = Request::new(Method::PUT, kind.path(&it)?).json(&flags.merge_into(body)?)?;
                objects()?.write("created", &it.id, &Request { condition, ..call })
            }
            Self::Update { it, flags, body } => {
                let changed = flags.merge_into(body)?;
                objects()?.replace(kind.path(&it)?, &it.id, |members| members.replace_with(&changed))
            }
            Self::Delete(it) => objects()?.write("deleted", &it.id, &Request::delete(kind.path(&it)?)),
        }
    }
}
