//! Fixtures of the tests of both eras: an agent, its resources and their contents.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::macros::datetime;

use crate::model::agent::AgentDescription;
use crate::model::call::{Content, Contents, ListPage, Page};
use crate::model::ids::ResourceUri;
use crate::model::label::Labels;
use crate::model::listed::ListedResource;
use crate::model::resource::{Definition, NewPart, PartKind, Resource};
use crate::model::scope::Revision;
use crate::model::tool::ToolSets;

/// Half past noon two hours east of Greenwich, and a fraction.
const CHANGED: OffsetDateTime = datetime!(2026-03-04 12:30:05.987 +2);

pub(super) fn agent() -> AgentDescription {
    AgentDescription {
        name: "Research \"R\"".to_owned(),
        title: Some("Research Assistant".to_owned()),
        instructions: Some("Read.".to_owned()),
        tools: ToolSets::default(),
    }
}

pub(super) fn nameless_agent() -> AgentDescription {
    AgentDescription { name: "a".to_owned(), title: None, instructions: None, tools: ToolSets::default() }
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn uri(text: &str) -> ResourceUri {
    ResourceUri::parse(text).unwrap()
}

fn content(own_uri: Option<&str>, mime: Option<&str>, kind: PartKind, bytes: &'static [u8]) -> Content {
    let bytes = Bytes::from_static(bytes);
    Content { uri: own_uri.map(uri), mime_type: mime.map(str::to_owned), kind, bytes, meta: None }
}

/// A resource with nothing but its name.
pub(super) fn bare(address: &str, annotations: Option<&str>) -> Resource {
    Resource {
        uri: uri(address),
        definition: Definition {
            name: "n".to_owned(),
            title: None,
            description: None,
            mime_type: None,
            annotations: annotations.map(raw),
            icons: None,
            meta: None,
        },
        labels: Labels::default(),
        parts: Vec::new(),
        source: None,
        revision: Revision(1),
        last_modified: CHANGED,
    }
}

/// A resource with every member, in spellings that parsing and printing would change.
pub(super) fn full() -> Resource {
    let mut resource = bare("beeos://agent/config", Some(r#"{ "priority" : 1.0, "audience":["user"] }"#));
    resource.definition = Definition {
        name: "config".to_owned(),
        title: Some("Cönfig\n".to_owned()),
        description: Some("What it does".to_owned()),
        mime_type: Some("text/plain".to_owned()),
        icons: Some(raw(r#"[ {"src":"https:\/\/a.example\/i.png"} ]"#)),
        meta: Some(raw(r#"{"b":1e2, "a":[ ]}"#)),
        ..resource.definition
    };
    resource.parts = vec![NewPart::new(None, None, PartKind::Text, Bytes::from("hé \"\n")).part];
    resource
}

/// A page of both, the last one or not.
pub(super) fn page() -> ListPage {
    let items = [bare("a:b", None), full()].map(|resource| ListedResource::Registered(Arc::new(resource)));
    ListPage::Resources(Page { items: items.into(), more: true })
}

/// Contents of every kind.
pub(super) fn contents() -> Contents {
    let parts = vec![
        content(None, None, PartKind::Text, "hé \"\n\u{1}".as_bytes()),
        content(Some("a:own"), Some("image/png"), PartKind::Blob, b"\xfb\xff\x00\x01"),
        content(None, None, PartKind::Blob, b""),
    ];
    Contents {
        uri: uri("beeos://agent/config"),
        mime_type: Some("text/plain".to_owned()),
        parts,
        revision: Revision(1),
        fresh_for: None,
    }
}

/// One text without a MIME type.
pub(super) fn plain_contents(text: &'static [u8]) -> Contents {
    let parts = vec![content(None, None, PartKind::Text, text)];
    Contents { uri: uri("a:b"), mime_type: None, parts, revision: Revision(1), fresh_for: None }
}
