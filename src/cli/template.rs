//! `waggle template`.

use clap::{Args, Subcommand};

use super::definitions::{self, Addressed, DefinitionKind, NamedFlags};
use super::format::{Cell, Kind, OutputArgs};
use super::input;
use super::object::{BodyFile, ObjectMembers};
use super::output::Failure;
use super::sources::Sources;
use crate::model::ids::Slug;

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
    list: "templates",
    parameter: Some("uriTemplate"),
};

/// Resource templates of an agent.
#[derive(Debug, Args)]
pub(super) struct Template {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the resource templates of an agent.
    List {
        /// The agent.
        #[arg(long, value_parser = Slug::parse_agent)]
        agent: Slug,
    },
    /// Print a resource template.
    Get(Addressed),
    /// Create a resource template.
    Create {
        #[command(flatten)]
        it: Addressed,
        #[command(flatten)]
        written: Written,
    },
    /// Change a resource template; what is not given stays as it is.
    Update {
        #[command(flatten)]
        it: Addressed,
        #[command(flatten)]
        written: Written,
    },
    /// Delete a resource template.
    Delete(Addressed),
}

#[derive(Debug, Args)]
struct Written {
    #[command(flatten)]
    flags: NamedFlags,
    /// A file with the text that is rendered; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    template: Option<String>,
    #[command(flatten)]
    body: BodyFile,
}

impl Written {
    fn members(self) -> Result<ObjectMembers, Failure> {
        let mut members = definitions::members(self.body, &self.flags)?;
        if let Some(file) = self.template {
            let bytes = input::read(&file).map_err(|error| Failure::Input(file.clone(), error))?;
            let text = String::from_utf8(bytes)
                .map_err(|_| Failure::InvalidInput(file, "is not UTF-8".to_owned()))?;
            members.set("template", &text)?;
        }
        Ok(members)
    }
}

impl Template {
    pub(super) fn run(self, sources: &Sources<'_>) -> Result<(), Failure> {
        let Self { output, command } = self;
        match command {
            Command::List { agent } => KIND.list(sources, output, &agent),
            Command::Get(it) => KIND.get(sources, output, &it),
            Command::Create { it, written } => KIND.create(sources, output, &it, &written.members()?),
            Command::Update { it, written } => KIND.update(sources, output, &it, &written.members()?),
            Command::Delete(it) => KIND.delete(sources, output, &it),
        }
    }
}
