//! What the tool `fetch` returns, in the shape that `ChatGPT` expects of it.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::blocks::{text_in, text_of};
use crate::model::call::{Contents, Messages};
use crate::model::fault::Fault;
use crate::model::prompt::Prompt;
use crate::model::resource::PartKind;
use crate::model::template::ResourceTemplate;
use crate::model::tool::{PROMPT_ID, id_of_uri};

/// The result.
#[derive(Debug, Serialize)]
pub(in crate::mcp) struct Fetched<'a> {
    id: Cow<'a, str>,
    title: &'a str,
    text: Cow<'a, str>,
    url: Cow<'a, str>,
    metadata: Metadata<'a>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    /// Whether the text ends early.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// The length of the whole text in bytes, if it ends early.
    #[serde(skip_serializing_if = "Option::is_none")]
    text_bytes: Option<usize>,
}

impl<'a> Fetched<'a> {
    fn new(
        (id, url): (Cow<'a, str>, Cow<'a, str>),
        title: &'a str,
        mut text: Cow<'a, str>,
        most: usize,
    ) -> Self {
        let mut metadata = Metadata::default();
        if text.len() > most {
            (metadata.truncated, metadata.text_bytes) = (true, Some(text.len()));
            let end = text.floor_char_boundary(most);
            match &mut text {
                Cow::Borrowed(text) => *text = &text[..end],
                Cow::Owned(text) => text.truncate(end),
            }
        }
        Self { id, title, text, url, metadata }
    }

    /// The texts of a resource, at most `most` bytes; data is left out.
    pub(in crate::mcp) fn of_contents(
        title: &'a str,
        contents: &'a Contents,
        most: usize,
    ) -> Result<Self, Fault> {
        let mut texts = Vec::with_capacity(contents.parts.len());
        for part in contents.parts.iter().filter(|part| part.kind == PartKind::Text) {
            texts.push(text_of(part)?);
        }
        let text = match texts.as_slice() {
            [only] => Cow::Borrowed(*only),
            several => Cow::Owned(several.concat()),
        };
        let mut fetched = Self::new(named(contents.uri.as_str()), title, text, most);
        fetched.metadata.mime_type = contents.parts.first().and_then(|part| contents.mime_type_of(part));
        Ok(fetched)
    }

    /// The texts of a prompt's messages, at most `most` bytes.
    pub(in crate::mcp) fn of_messages(prompt: &'a Prompt, messages: &Messages, most: usize) -> Self {
        let texts: Vec<_> = messages.messages.iter().map(|message| text_in(&message.content.kind)).collect();
        let (name, title) = (prompt.name.as_str(), prompt.definition.title.as_deref());
        let id = format!("{PROMPT_ID}{name}");
        Self::new((id.clone().into(), id.into()), title.unwrap_or(name), Cow::Owned(texts.join("\n\n")), most)
    }

    /// How to use a template.
    pub(super) fn of_template(template: &'a ResourceTemplate, most: usize) -> Self {
        let (id, url) = named(template.uri_template.as_str());
        let definition = &template.definition;
        let text = format!(
            "{}\n\nThis is a template of URIs: replace each {{variable}} of {id} by a value, and fetch the URI.",
            definition.description.as_deref().unwrap_or(&definition.name)
        );
        let title = definition.title.as_deref().unwrap_or(&definition.name);
        Self::new((id, url), title, Cow::Owned(text), most)
    }

    /// As JSON.
    pub(in crate::mcp) fn into_json(self) -> Result<Box<RawValue>, Fault> {
        to_raw_value(&self).map_err(Fault::cannot_encode)
    }
}

/// The id and the URL of a URI or a template.
fn named(uri: &str) -> (Cow<'_, str>, Cow<'_, str>) {
    (id_of_uri(uri), Cow::Borrowed(uri))
}
