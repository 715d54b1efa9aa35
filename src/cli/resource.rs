//! `waggle resource`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::admin::{Admin, Request};
use super::definitions::{self, Addressed, DefinitionKind, NamedFlags};
use super::format::{Cell, Kind, OutputArgs};
use super::input;
use super::object::{BodyFile, ObjectMembers, encoded, request};
use super::output::{Failure, print, print_piece};
use super::sources::Sources;
use crate::model::ids::Slug;
use crate::model::resource::PartKind;

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
    list: "resources",
    parameter: Some("uri"),
};

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
    /// List the resources of an agent.
    List {
        /// The agent.
        #[arg(long, value_parser = Slug::parse_agent)]
        agent: Slug,
    },
    /// Print a resource with its contents.
    Get(Addressed),
    /// Create a resource, from a file with its definition.
    Create {
        #[command(flatten)]
        it: Addressed,
        #[command(flatten)]
        flags: NamedFlags,
        #[command(flatten)]
        body: BodyFile,
    },
    /// Change a resource; what is not given stays as it is.
    Update {
        #[command(flatten)]
        it: Addressed,
        #[command(flatten)]
        flags: NamedFlags,
        #[command(flatten)]
        body: BodyFile,
    },
    /// Delete a resource.
    Delete(Addressed),
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
    pub(super) fn run(self, sources: &Sources<'_>) -> Result<(), Failure> {
        let Self { output, command } = self;
        match command {
            Command::List { agent } => KIND.list(sources, output, &agent),
            Command::Get(it) => KIND.get(sources, output, &it),
            Command::Create { it, flags, body } => {
                KIND.create(sources, output, &it, &definitions::members(body, &flags)?)
            }
            Command::Update { it, flags, body } => {
                KIND.update(sources, output, &it, &definitions::members(body, &flags)?)
            }
            Command::Delete(it) => KIND.delete(sources, output, &it),
            Command::Cat(Addressed { agent, id }) => {
                let path = format!("/agents/{agent}/resources/content?uri={}", encoded(&id));
                print_piece(&Admin::of(sources)?.call(&request(Method::GET, path, None)?)?).map(|_| ())
            }
            Command::Touch(Addressed { agent, id }) => {
                let path = format!("/agents/{agent}/resources/touch?uri={}", encoded(&id));
                KIND.objects(sources, output)?.write("touched", &id, &request(Method::POST, path, None)?)
            }
            Command::Put(put) => put.run(sources, output),
        }
    }
}

impl Put {
    fn run(self, sources: &Sources<'_>, output: OutputArgs) -> Result<(), Failure> {
        let Self { agent, uri, file, name, mime_type, labels } = self;
        let admin = Admin::of(sources)?;
        let bytes = input::read(&file).map_err(|error| Failure::Input(file, error))?;
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
        members.set("contents", &[content(mime_type.as_deref(), &bytes)])?;
        let body = serde_json::to_vec(&members)?;
        // No other change in between is overwritten.
        let condition = Some(tag.map_or(("if-none-match", "*".to_owned()), |tag| ("if-match", tag)));
        let written = admin.exchange(&Request { method: Method::PUT, path, body: Some(body), condition })?;
        if !output.is_for_people() {
            let answer: Option<Box<RawValue>> = serde_json::from_slice(&written.body).ok();
            return output.done(&KIND.kind, &uri, "put", answer.as_deref());
        }
        let revision = written.tag.unwrap_or_default();
        print(&format!("{uri} is at revision {}\n", revision.trim_matches('"')))
    }
}

fn content(mime_type: Option<&str>, bytes: &[u8]) -> Value {
    match PartKind::of(mime_type, bytes) {
        PartKind::Text => json!({"text": String::from_utf8_lossy(bytes)}),
        PartKind::Blob => json!({"blob": BASE64_STANDARD.encode(bytes)}),
    }
}

fn last_segment(uri: &str) -> &str {
    uri.rsplit('/').find(|segment| !segment.is_empty()).unwrap_or(uri)
}
