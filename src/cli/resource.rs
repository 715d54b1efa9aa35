//! `waggle resource`: puts files into an agent's catalog.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::Subcommand;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::admin::{Admin, Request};
use super::input;
use super::output::{Failure, print};
use super::sources::Sources;
use crate::model::ids::Slug;
use crate::model::resource::PartKind;

#[derive(Subcommand)]
pub(super) enum Resource {
    /// Make a file the only content of a resource, or add a resource; what is not given stays as it is.
    Put {
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
    },
}

/// The members of a resource as JSON that is kept as it was sent.
type Members = BTreeMap<String, Box<RawValue>>;

impl Resource {
    pub(super) fn run(self, sources: &Sources<'_>) -> Result<(), Failure> {
        let Self::Put { agent, uri, file, name, mime_type, labels } = self;
        let admin = Admin::of(sources)?;
        let bytes = input::read(&file).map_err(|error| Failure::Input(file, error))?;
        let path = format!("/agents/{agent}/resources?uri={}", utf8_percent_encode(&uri, NON_ALPHANUMERIC));
        let found = admin.find(&path)?;
        let (tag, mut members) = match &found {
            None => (None, Members::new()),
            Some(found) => (found.tag.clone(), serde_json::from_slice(&found.body)?),
        };
        if let Some(name) = name.or_else(|| found.is_none().then(|| last_segment(&uri).to_owned())) {
            set(&mut members, "name", &name)?;
        }
        if let Some(mime_type) = mime_type {
            set(&mut members, "mimeType", &mime_type)?;
        }
        if !labels.is_empty() {
            set(&mut members, "labels", &labels)?;
        }
        let mime_type: Option<String> =
            members.get("mimeType").map(|raw| serde_json::from_str(raw.get())).transpose()?;
        set(&mut members, "contents", &[content(mime_type.as_deref(), &bytes)])?;
        let body = serde_json::to_vec(&members)?;
        // Nobody's change in between is overwritten.
        let condition = Some(tag.map_or(("if-none-match", "*".to_owned()), |tag| ("if-match", tag)));
        let written = admin.exchange(&Request { method: Method::PUT, path, body: Some(body), condition })?;
        let revision = written.tag.unwrap_or_default();
        print(&format!("{uri} is at revision {}\n", revision.trim_matches('"')))
    }
}

fn set(members: &mut Members, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
    members.insert(name.to_owned(), serde_json::value::to_raw_value(value)?);
    Ok(())
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
