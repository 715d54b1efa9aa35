//! `waggle prompt`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::definitions::{Addressed, DefinitionCommand, DefinitionFlags, DefinitionKind, Flags};
use super::format::{Cell, Kind, OutputArgs};
use super::invocation::Invocation;
use super::output::{Failure, print};

const KIND: DefinitionKind = DefinitionKind {
    kind: Kind {
        name: "prompt",
        key: "name",
        columns: &[
            ("NAME", "name", Cell::Text),
            ("TITLE", "title", Cell::Text),
            ("DESCRIPTION", "description", Cell::Text),
            ("LABELS", "labels", Cell::Text),
        ],
    },
    noun: "prompt",
    printed_with: "",
    created_from: ", from a file with its messages",
    list: "prompts",
    parameter: None,
};

impl DefinitionFlags for Flags {
    const KIND: DefinitionKind = KIND;
}

/// Prompts of an agent.
#[derive(Debug, Args)]
pub(super) struct Prompt {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Definition(DefinitionCommand<Flags>),
    /// Print the messages of a prompt as a client gets them; `WAGGLE_KEY` is a key of the agent or its owner.
    Render {
        #[command(flatten)]
        it: Addressed,
        /// The arguments, such as topic=bees.
        #[arg(value_parser = argument)]
        arguments: Vec<(String, String)>,
    },
}

/// `name=value`.
fn argument(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected name=value")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Prompt {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let Self { output, command } = self;
        match command {
            Command::Definition(command) => command.run(invocation, output),
            Command::Render { it, arguments } => render(invocation, output, &it, arguments),
        }
    }
}

#[derive(Deserialize)]
struct Rendered {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Value,
}

fn render(
    invocation: &Invocation<'_>,
    output: OutputArgs,
    Addressed { agent, id }: &Addressed,
    arguments: Vec<(String, String)>,
) -> Result<(), Failure> {
    let objects = KIND.objects(invocation, output)?;
    let arguments: BTreeMap<_, _> = arguments.into_iter().collect();
    let params = json!({"name": id, "arguments": arguments});
    let result: Box<RawValue> = objects.admin.mcp(agent, "prompts/get", &params)?;
    if !output.is_for_people() {
        return output.object(&KIND.kind, &result);
    }
    let Rendered { messages } = serde_json::from_str(result.get())?;
    for Message { role, content } in messages {
        let text = content["text"].as_str().map_or_else(|| content.to_string(), str::to_owned);
        print(&format!("{role}: {text}\n"))?;
    }
    Ok(())
}
