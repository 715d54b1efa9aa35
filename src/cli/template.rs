//! `waggle template`.

use clap::Args;
use serde::Serialize;

use super::definitions::{DefinitionCommand, DefinitionFlags, DefinitionKind, NamedFlags};
use super::format::{Cell, Kind, OutputArgs};
use super::input;
use super::invocation::Invocation;
use super::object::ObjectMembers;
use super::output::Failure;

/// Resource templates of an agent.
#[derive(Debug, Args)]
pub(super) struct Template {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: DefinitionCommand<TemplateFlags>,
}

/// The members of resource templates.
#[derive(Debug, Args, Serialize)]
struct TemplateFlags {
    #[command(flatten)]
    #[serde(flatten)]
    named: NamedFlags,
    /// A file with the text that is rendered; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    template: Option<String>,
}

impl DefinitionFlags for TemplateFlags {
    const KIND: DefinitionKind = DefinitionKind {
        kind: Kind {
            name: "template",
            key: "uriTemplate",
            columns: &[
                ("URI TEMPLATE", "uriTemplate", Cell::Text),
                ("NAME", "name", Cell::Text),
                ("MIME TYPE", "mimeType", Cell::Text),
                ("LABELS", "labels", Cell::Text),
            ],
        },
        noun: "resource template",
        printed_with: "",
        created_from: "",
        list: "templates",
        parameter: Some("uriTemplate"),
    };

    fn set(&self, members: &mut ObjectMembers) -> Result<(), Failure> {
        members.replace_with(self)?;
        let text = self.template.as_deref().map(input::text).transpose()?;
        members.set_some("template", text.as_ref())
    }
}

impl Template {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        self.command.run(invocation, self.output)
    }
}
