//! `waggle resource`.

use std::fmt::Write;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::admin::{Admin, Request};
use super::definitions::{Addressed, DefinitionCommand, DefinitionFlags, DefinitionKind, NamedFlags};
use super::format::{Cell, Kind, OutputArgs};
use super::input;
use super::invocation::Invocation;
use super::object::{ObjectMembers, encoded};
use super::output::{Failure, print, print_piece};
use crate::model::ids::Slug;

const KIND: DefinitionKind = DefinitionKind {
    kind: Kind {
        name: "resource",
        key: "uri",
        columns: &[
            ("URI", "uri", Cell::Text),
            ("NAME", "name", Cell::Text),
            ("MIME TYPE", "mimeType", Cell::Text),
            ("BYTES", "size", Cell::Text),
            ("LABELS", "labels", Cell::Text),
        ],
    },
    noun: "resource",
    printed_with: " with its contents",
    created_from: ", from a file with its definition",
    list: "resources",
    parameter: Some("uri"),
};

impl DefinitionFlags for NamedFlags {
    const KIND: DefinitionKind = KIND;
}

/// Resources of an agent.
#[derive(Args)]
pub(super) struct Resource {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Definition(DefinitionCommand<NamedFlags>),
    /// Write the bytes of a resource to standard output.
    Cat(Addressed),
    /// Notify the subscribers of a resource without new content.
    Touch(Addressed),
    /// Make a file the only content of a resource, or add a resource; what is not given stays as it is.
    Put(Put),
}

#[derive(Args)]
struct Put {
    /// The agent.
    #[arg(long, value_parser = Slug::parse_agent)]
    agent: Slug,
    /// The URI of the resource.
    uri: String,
    /// The file with the content; `-` is standard input.
    file: String,
    /// Its name; that of a new resource is the last segment of its URI by default.
    #[arg(long)]
    name: Option<String>,
    /// Its MIME type.
    #[arg(long)]
    mime_type: Option<String>,
    /// A label of the resource: only callers who have one of its labels see it. Replaces its labels; can be repeated.
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
}

impl Resource {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let Self { output, command } = self;
        match command {
            Command::Definition(DefinitionCommand::Get(it)) if output.is_for_people() => {
                get(invocation, output, &it)
            }
            Command::Definition(command) => command.run(invocation, output),
            Command::Cat(Addressed { agent, id }) => {
                let path = format!("/agents/{agent}/resources/content?uri={}", encoded(&id));
                print_piece(&Admin::of(invocation)?.call(&Request::get(path))?).map(|_| ())
            }
            Command::Touch(Addressed { agent, id }) => {
                let path = format!("/agents/{agent}/resources/touch?uri={}", encoded(&id));
                KIND.objects(invocation, output)?.write("touched", &id, &Request::new(Method::POST, path))
            }
            Command::Put(put) => put.run(invocation, output),
        }
    }
}

/// Prints a resource, and its contents or their source below it.
fn get(invocation: &Invocation<'_>, output: OutputArgs, it: &Addressed) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Content {
        text: Option<String>,
        blob: Option<String>,
    }
    let objects = KIND.objects(invocation, output)?;
    let mut members: Value = serde_json::from_slice(&objects.admin.call(&Request::get(KIND.path(it)?))?)?;
    let contents = members.get_mut("contents").map_or_else(|| Value::Array(Vec::new()), Value::take);
    let (mut size, mut below) = (0, String::new());
    for Content { text, blob } in serde_json::from_value::<Vec<Content>>(contents)? {
        let bytes = input::bytes(text.as_deref(), blob.as_deref()).map_err(Failure::Gateway)?;
        size += bytes.len();
        // Writing to a string does not fail.
        let _ = match text {
            Some(text) => writeln!(below, "\n{}", printable(text.strip_suffix('\n').unwrap_or(&text))),
            None => writeln!(below, "\n({} bytes, which `waggle resource cat` writes)", bytes.len()),
        };
    }
    if let Some(source) = members.get("source") {
        let _ = writeln!(below, "\nsource: {}", printable(&source.to_string()));
    } else {
        members["size"] = size.into();
    }
    output.object(&KIND.kind, &to_raw_value(&members)?)?;
    print(&below)
}

/// A text without control characters, with which it could change what a terminal shows; `waggle resource cat` writes them.
fn printable(text: &str) -> String {
    text.chars().filter(|character| !character.is_control() || matches!(character, '\n' | '\t')).collect()
}

impl Put {
    fn run(self, invocation: &Invocation<'_>, output: OutputArgs) -> Result<(), Failure> {
        let Self { agent, uri, file, name, mime_type, labels } = self;
        let admin = Admin::of(invocation)?;
        let bytes = input::read(&file)?;
        let path = format!("/agents/{agent}/resources?uri={}", encoded(&uri));
        let found = admin.find(&path)?;
        let (tag, mut members) = match &found {
            None => (None, ObjectMembers::default()),
            Some(found) => (found.tag.clone(), serde_json::from_slice(&found.body)?),
        };
        if let Some(name) = name.or_else(|| found.is_none().then(|| last_segment(&uri).to_owned())) {
            members.set("name", &name)?;
        }
        members.set_some("mimeType", mime_type.as_ref())?;
        members.set_list("labels", &labels)?;
        let mime_type: Option<String> =
            members.get("mimeType").map(|raw| serde_json::from_str(raw.get())).transpose()?;
        members.set("contents", &[input::content(mime_type.as_deref(), &bytes)])?;
        let written = admin.put(path, &members, tag)?;
        if !output.is_for_people() {
            let answer: Option<Box<RawValue>> = serde_json::from_slice(&written.body).ok();
            return output.done(&KIND.kind, &uri, "put", answer.as_deref());
        }
        print(&format!("{uri} is at revision {}\n", written.revision()))
    }
}

fn last_segment(uri: &str) -> &str {
    uri.rsplit('/').find(|segment| !segment.is_empty()).unwrap_or(uri)
}
