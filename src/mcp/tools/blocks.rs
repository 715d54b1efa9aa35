//! The content blocks of a tool's result: the contents of a resource, or the messages of a prompt. Texts end at a limit.

use std::borrow::Cow;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::mcp::contents::Blob;
use crate::mcp::version::ContentTypes;
use crate::model::call::{Content, Contents};
use crate::model::fault::Fault;
use crate::model::message::{ContentBlock, ContentKind, EmbeddedResource, Media, PromptMessage, Role};
use crate::model::resource::PartKind;

/// The approximate size of an encoded block without its text or data.
const BLOCK_OVERHEAD: usize = 96;

/// A content block.
#[derive(Debug)]
pub(in crate::mcp) enum Block<'a> {
    /// A text.
    Text(Cow<'a, str>),
    /// An image or a sound, by the value of `type`.
    Media { kind: &'static str, mime_type: &'a str, bytes: &'a [u8] },
    /// Any other data.
    Resource { uri: &'a str, mime_type: Option<&'a str>, bytes: &'a [u8] },
    /// The content of a message.
    Message(Cow<'a, ContentBlock>),
}

impl Block<'_> {
    /// The approximate encoded size.
    pub(in crate::mcp) fn encoded_len(&self) -> usize {
        let long = match self {
            // An eighth more for JSON escapes.
            Self::Text(text) => text.len() + text.len() / 8,
            Self::Media { bytes, .. } | Self::Resource { bytes, .. } => bytes.len() / 3 * 4,
            Self::Message(content) => text_in(&content.kind).len() + data_len(&content.kind) / 3 * 4,
        };
        long + BLOCK_OVERHEAD
    }
}

impl Serialize for Block<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut block = match self {
            Self::Message(content) => return content.serialize(serializer),
            _ => serializer.serialize_map(None)?,
        };
        match self {
            Self::Text(text) => {
                block.serialize_entry("type", "text")?;
                block.serialize_entry("text", text)?;
            }
            Self::Media { kind, mime_type, bytes } => {
                block.serialize_entry("type", kind)?;
                block.serialize_entry("data", &Blob(bytes))?;
                block.serialize_entry("mimeType", mime_type)?;
            }
            Self::Resource { uri, mime_type, bytes } => {
                block.serialize_entry("type", "resource")?;
                let resource = Embedded { uri, mime_type: *mime_type, blob: Blob(bytes) };
                block.serialize_entry("resource", &resource)?;
            }
            Self::Message(_) => {}
        }
        block.end()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Embedded<'a> {
    uri: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    blob: Blob<'a>,
}

/// The blocks of a resource's contents, from an offset in bytes of the concatenated texts on. At most `most` bytes of text
/// are sent; a block that names the next offset follows. Data is sent with the beginning of the text alone.
///
/// # Errors
/// [`Fault::InvalidParams`] for an offset after the end; [`Fault::ResultTooLarge`] if there is too much data.
pub(in crate::mcp) fn of_contents(
    contents: &Contents,
    offset: usize,
    most: usize,
    types: ContentTypes,
) -> Result<Vec<Block<'_>>, Fault> {
    let of_kind =
        |kind| contents.parts.iter().filter(move |part| part.kind == kind).map(|part| part.bytes.len());
    let total: usize = of_kind(PartKind::Text).sum();
    if offset > total {
        let message = format!("arguments.offset is {offset}, after the end of the text at {total}");
        return Err(Fault::invalid_params(message));
    }
    check_data(of_kind(PartKind::Blob).sum(), most)?;
    let end = total.min(offset.saturating_add(most));
    let (mut blocks, mut start, mut next) = (Vec::with_capacity(contents.parts.len() + 1), 0, total);
    for part in &contents.parts {
        match part.kind {
            PartKind::Blob if offset == 0 => blocks.push(of_data(contents, part, types)),
            PartKind::Blob => {}
            PartKind::Text => {
                let text = text_of(part)?;
                let within = |position: usize| text.floor_char_boundary(position.saturating_sub(start));
                let (from, to) = (within(offset), within(end));
                if from < to || (text.is_empty() && offset == 0) {
                    blocks.push(Block::Text(Cow::Borrowed(&text[from..to])));
                }
                if (start..start + text.len()).contains(&end) {
                    next = start + to;
                }
                start += text.len();
            }
        }
    }
    if next < total {
        blocks.push(Block::Text(Cow::Owned(format!(
            "The text has {total} bytes and continues: call read_resource again with \"offset\": {next}."
        ))));
    }
    Ok(blocks)
}

pub(super) fn text_of(part: &Content) -> Result<&str, Fault> {
    std::str::from_utf8(&part.bytes).map_err(|_| Fault::cannot_encode("a text part is not UTF-8"))
}

fn of_data<'a>(contents: &'a Contents, part: &'a Content, types: ContentTypes) -> Block<'a> {
    let (mime_type, bytes) = (contents.mime_type_of(part), &part.bytes[..]);
    match mime_type {
        Some(mime_type) if has_type(mime_type, "image/") => Block::Media { kind: "image", mime_type, bytes },
        Some(mime_type) if has_type(mime_type, "audio/") && types >= ContentTypes::Audio => {
            Block::Media { kind: "audio", mime_type, bytes }
        }
        _ => Block::Resource { uri: contents.uri_of(part).as_str(), mime_type, bytes },
    }
}

fn has_type(mime_type: &str, name: &str) -> bool {
    mime_type.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

/// The blocks of a prompt's messages in order, each led by its role if there are several. At most `most` bytes of text are
/// sent; a block that says so follows.
///
/// # Errors
/// [`Fault::ResultTooLarge`] if there is too much data.
pub(in crate::mcp) fn of_messages(messages: &[PromptMessage], most: usize) -> Result<Vec<Block<'_>>, Fault> {
    check_data(messages.iter().map(|message| data_len(&message.content.kind)).sum(), most)?;
    let (mut blocks, mut left) = (Vec::with_capacity(2 * messages.len()), most);
    for PromptMessage { role, content } in messages {
        if messages.len() > 1 {
            let role = match role {
                Role::User => "[user]",
                Role::Assistant => "[assistant]",
            };
            blocks.push(Block::Text(Cow::Borrowed(role)));
        }
        let text = text_in(&content.kind);
        if text.len() <= left {
            left -= text.len();
            blocks.push(Block::Message(Cow::Borrowed(content)));
            continue;
        }
        let end = text.floor_char_boundary(left);
        if end > 0 {
            blocks.push(Block::Message(Cow::Owned(cut(content, end))));
        }
        blocks.push(Block::Text(Cow::Owned(format!(
            "The text of the prompt is longer and ends here, at offset {}.",
            most - left + end
        ))));
        break;
    }
    Ok(blocks)
}

/// The length of the data of a content block.
fn data_len(content: &ContentKind) -> usize {
    match content {
        ContentKind::Image(Media { data, .. }) | ContentKind::Audio(Media { data, .. }) => decoded_len(data),
        ContentKind::Resource(resource) => resource.blob.as_deref().map_or(0, decoded_len),
        ContentKind::Text(_) | ContentKind::ResourceLink(_) => 0,
    }
}

/// The length of the data that a text in base64 stands for.
fn decoded_len(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

pub(super) fn text_in(content: &ContentKind) -> &str {
    match content {
        ContentKind::Text(text) => text,
        ContentKind::Resource(resource) => resource.text.as_deref().unwrap_or_default(),
        ContentKind::Image(_) | ContentKind::Audio(_) | ContentKind::ResourceLink(_) => "",
    }
}

/// A content block whose text ends at a character boundary.
fn cut(content: &ContentBlock, end: usize) -> ContentBlock {
    let mut content = content.clone();
    if let ContentKind::Text(text) | ContentKind::Resource(EmbeddedResource { text: Some(text), .. }) =
        &mut content.kind
    {
        text.truncate(end);
    }
    content
}

fn check_data(bytes: usize, most: usize) -> Result<(), Fault> {
    if bytes > most { Err(Fault::ResultTooLarge { bytes, most }) } else { Ok(()) }
}
