//! Messages of prompts, in the format of the MCP specification (server/prompts, `PromptMessage`).
//!
//! Registered messages contain templates; served messages contain the rendered texts.

use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::json;

/// A message of a prompt.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptMessage {
    /// Role of the speaker.
    pub role: Role,
    /// Content of the message.
    #[serde(deserialize_with = "json::object")]
    pub content: ContentBlock,
}

/// Role of the speaker of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// Content of a message (`ContentBlock`).
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Flat")]
pub struct ContentBlock {
    /// The kind, with its members.
    pub kind: ContentKind,
    /// Annotations as sent.
    pub annotations: Option<Box<RawValue>>,
    /// `_meta` as sent.
    pub meta: Option<Box<RawValue>>,
}

/// The kinds of content.
#[derive(Debug, Clone)]
pub enum ContentKind {
    /// Text.
    Text(String),
    /// An image.
    Image(Media),
    /// Audio.
    Audio(Media),
    /// A link to a resource.
    ResourceLink(Box<ResourceLink>),
    /// An embedded resource.
    Resource(EmbeddedResource),
}

impl ContentKind {
    /// The value of the member `type`.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Image(_) => "image",
            Self::Audio(_) => "audio",
            Self::ResourceLink(_) => "resource_link",
            Self::Resource(_) => "resource",
        }
    }
}

/// An image or audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// Base64-encoded data.
    pub data: String,
    /// MIME type.
    pub mime_type: String,
}

/// A link to a resource (`ResourceLink`).
#[derive(Debug, Clone)]
pub struct ResourceLink {
    /// URI of the resource.
    pub uri: String,
    /// Name.
    pub name: String,
    /// Title for people.
    pub title: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// MIME type.
    pub mime_type: Option<String>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Icons as sent.
    pub icons: Option<Box<RawValue>>,
}

/// An embedded resource. A registered one with neither text nor blob refers to a registered resource, whose
/// content is read when the prompt is served; a served one has one of the two.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EmbeddedResource {
    /// URI of the resource.
    pub uri: String,
    /// MIME type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Text content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Binary content, base64-encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// `_meta` as sent.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

impl EmbeddedResource {
    /// Whether it refers to a registered resource.
    pub fn is_reference(&self) -> bool {
        self.text.is_none() && self.blob.is_none()
    }
}

/// Whether a text has anything to render: every tag contains a brace.
pub fn is_template(text: &str) -> bool {
    text.contains('{')
}

impl PromptMessage {
    /// The texts that are templates, in a fixed order.
    pub fn templates_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let texts = match &mut self.content.kind {
            ContentKind::Text(text) => [Some(text), None, None, None],
            ContentKind::Image(_) | ContentKind::Audio(_) => [None, None, None, None],
            ContentKind::ResourceLink(link) => {
                let ResourceLink { uri, name, title, description, .. } = &mut **link;
                [Some(uri), Some(name), title.as_mut(), description.as_mut()]
            }
            ContentKind::Resource(resource) => [Some(&mut resource.uri), resource.text.as_mut(), None, None],
        };
        texts.into_iter().flatten()
    }
}

/// A content block with the members of all kinds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Flat {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    data: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    size: Option<u64>,
    #[serde(default, deserialize_with = "json::optional_object")]
    resource: Option<EmbeddedResource>,
    icons: Option<Box<RawValue>>,
    annotations: Option<Box<RawValue>>,
    #[serde(rename = "_meta")]
    meta: Option<Box<RawValue>>,
}

/// Members of each kind in addition to `type`, `annotations` and `_meta`.
const MEMBERS: [(&str, &[&str]); 5] = [
    ("text", &["text"]),
    ("image", &["data", "mimeType"]),
    ("audio", &["data", "mimeType"]),
    ("resource_link", &["uri", "name", "title", "description", "mimeType", "size", "icons"]),
    ("resource", &["resource"]),
];

impl Flat {
    fn present(&self) -> impl Iterator<Item = &'static str> {
        [
            ("text", self.text.is_some()),
            ("data", self.data.is_some()),
            ("uri", self.uri.is_some()),
            ("name", self.name.is_some()),
            ("title", self.title.is_some()),
            ("description", self.description.is_some()),
            ("mimeType", self.mime_type.is_some()),
            ("size", self.size.is_some()),
            ("resource", self.resource.is_some()),
            ("icons", self.icons.is_some()),
        ]
        .into_iter()
        .filter_map(|(member, there)| there.then_some(member))
    }

    fn check(&self) -> Result<(), String> {
        let Some((kind, members)) = MEMBERS.iter().find(|(kind, _)| *kind == self.kind) else {
            return Err(format!(
                "unknown content type `{}`, expected text, image, audio, resource_link or resource",
                self.kind.escape_debug()
            ));
        };
        match self.present().find(|member| !members.contains(member)) {
            Some(foreign) => Err(format!("content of type {kind} has no member `{foreign}`")),
            None => Ok(()),
        }
    }
}

impl TryFrom<Flat> for ContentBlock {
    type Error = String;

    fn try_from(flat: Flat) -> Result<Self, String> {
        flat.check()?;
        let Flat {
            kind, text, data, uri, name, title, description, mime_type, size, resource, icons, ..
        } = flat;
        let missing = |member: &str| format!("content of type {kind} needs `{member}`");
        let kind = match kind.as_str() {
            "text" => ContentKind::Text(text.ok_or_else(|| missing("text"))?),
            "resource" => ContentKind::Resource(resource.ok_or_else(|| missing("resource"))?),
            "resource_link" => ContentKind::ResourceLink(Box::new(ResourceLink {
                uri: uri.ok_or_else(|| missing("uri"))?,
                name: name.ok_or_else(|| missing("name"))?,
                title,
                description,
                mime_type,
                size,
                icons,
            })),
            media => {
                let data = data.ok_or_else(|| missing("data"))?;
                let mime_type = mime_type.ok_or_else(|| missing("mimeType"))?;
                let content = Media { data, mime_type };
                if media == "image" { ContentKind::Image(content) } else { ContentKind::Audio(content) }
            }
        };
        Ok(Self { kind, annotations: flat.annotations, meta: flat.meta })
    }
}

/// Written by hand to avoid a copy: messages are serialized as often as they are rendered.
impl Serialize for ContentBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut block = serializer.serialize_map(None)?;
        block.serialize_entry("type", self.kind.as_str())?;
        match &self.kind {
            ContentKind::Text(text) => block.serialize_entry("text", text)?,
            ContentKind::Image(Media { data, mime_type }) | ContentKind::Audio(Media { data, mime_type }) => {
                block.serialize_entry("data", data)?;
                block.serialize_entry("mimeType", mime_type)?;
            }
            ContentKind::Resource(resource) => block.serialize_entry("resource", resource)?,
            ContentKind::ResourceLink(link) => link.serialize_members(&mut block)?,
        }
        optional(&mut block, "annotations", self.annotations.as_ref())?;
        optional(&mut block, "_meta", self.meta.as_ref())?;
        block.end()
    }
}

impl ResourceLink {
    fn serialize_members<M: SerializeMap>(&self, block: &mut M) -> Result<(), M::Error> {
        block.serialize_entry("uri", &self.uri)?;
        block.serialize_entry("name", &self.name)?;
        optional(block, "title", self.title.as_ref())?;
        optional(block, "description", self.description.as_ref())?;
        optional(block, "mimeType", self.mime_type.as_ref())?;
        optional(block, "size", self.size.as_ref())?;
        optional(block, "icons", self.icons.as_ref())
    }
}

fn optional<M: SerializeMap>(
    block: &mut M,
    member: &str,
    value: Option<&impl Serialize>,
) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| block.serialize_entry(member, value))
}

#[cfg(test)]
mod tests {
    use super::PromptMessage;

    fn read(content: &str) -> Result<String, String> {
        let text = format!(r#"{{"role":"user","content":{content}}}"#);
        let message: PromptMessage = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        serde_json::to_string(&message).map_err(|error| error.to_string())
    }

    #[test]
    fn every_kind_of_content_round_trips() {
        for content in [
            r#"{"type":"text","text":"{{ a }}","annotations":{ "priority":1.0},"_meta":{ }}"#,
            r#"{"type":"image","data":"AA==","mimeType":"image/png"}"#,
            r#"{"type":"audio","data":"AA==","mimeType":"audio/wav"}"#,
            r#"{"type":"resource_link","uri":"a:b","name":"n","title":"t","description":"d","mimeType":"text/plain","size":3,"icons":[ ]}"#,
            r#"{"type":"resource","resource":{"uri":"a:b"}}"#,
            r#"{"type":"resource","resource":{"uri":"a:b","mimeType":"text/plain","text":"x","_meta":{}}}"#,
            r#"{"type":"resource","resource":{"uri":"a:b","blob":"AA=="}}"#,
        ] {
            assert_eq!(read(content), Ok(format!(r#"{{"role":"user","content":{content}}}"#)));
        }
    }

    #[test]
    fn members_of_other_kinds_are_rejected() {
        for (content, expected) in [
            (r#"{"type":"video"}"#, "unknown content type `video`"),
            (r#"{"type":"text"}"#, "content of type text needs `text`"),
            (r#"{"type":"text","text":"a","data":"b"}"#, "content of type text has no member `data`"),
            (r#"{"type":"image","data":"AA=="}"#, "content of type image needs `mimeType`"),
            (r#"{"type":"text","text":"a","other":1}"#, "unknown field `other`"),
            (r#"{"type":"resource","resource":{"text":"a"}}"#, "missing field `uri`"),
            (r#"{"text":"a"}"#, "missing field `type`"),
            (r#"["text","a"]"#, "invalid type: sequence, expected an object"),
            (r#"{"type":"resource","resource":["a:b"]}"#, "invalid type: sequence, expected an object"),
            (r#"{"type":"resource","resource":null}"#, "content of type resource needs `resource`"),
        ] {
            let error = read(content).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn texts_are_templates_and_data_is_not() {
        let templates = |content: &str| {
            let text = format!(r#"{{"role":"assistant","content":{content}}}"#);
            let mut message: PromptMessage = serde_json::from_str(&text).unwrap();
            message.templates_mut().map(|text| text.clone()).collect::<Vec<_>>()
        };
        assert_eq!(templates(r#"{"type":"text","text":"a"}"#), ["a"]);
        assert!(templates(r#"{"type":"image","data":"{{a}}","mimeType":"image/png"}"#).is_empty());
        let link = r#"{"type":"resource_link","uri":"u","name":"n","description":"d"}"#;
        assert_eq!(templates(link), ["u", "n", "d"]);
        assert_eq!(templates(r#"{"type":"resource","resource":{"uri":"u","text":"t"}}"#), ["u", "t"]);
    }
}
