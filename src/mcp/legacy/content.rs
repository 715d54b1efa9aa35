//! Messages of prompts in the content types of an older revision.

use std::borrow::Cow;

use crate::mcp::version::ContentTypes;
use crate::model::message::{ContentKind, EmbeddedResource, PromptMessage, ResourceLink};

/// The messages in supported content types: audio becomes an embedded resource, a resource link becomes text.
pub(in crate::mcp) fn known(messages: &[PromptMessage], types: ContentTypes) -> Cow<'_, [PromptMessage]> {
    let is_known = |message: &PromptMessage| match message.content.kind {
        ContentKind::Text(_) | ContentKind::Image(_) | ContentKind::Resource(_) => true,
        ContentKind::Audio(_) => types >= ContentTypes::Audio,
        ContentKind::ResourceLink(_) => types >= ContentTypes::ResourceLinks,
    };
    if messages.iter().all(is_known) {
        return Cow::Borrowed(messages);
    }
    let converted = messages.iter().enumerate().map(|(index, message)| {
        let mut message = message.clone();
        if !is_known(&message) {
            message.content.kind = fallback(message.content.kind, index);
        }
        message
    });
    Cow::Owned(converted.collect())
}

fn fallback(kind: ContentKind, index: usize) -> ContentKind {
    match kind {
        ContentKind::Audio(audio) => ContentKind::Resource(EmbeddedResource {
            uri: format!("prompt-message:{index}"),
            mime_type: Some(audio.mime_type),
            text: None,
            blob: Some(audio.data),
            meta: None,
        }),
        ContentKind::ResourceLink(link) => ContentKind::Text(link_as_text(*link)),
        known => known,
    }
}

fn link_as_text(link: ResourceLink) -> String {
    let ResourceLink { uri, name, title, description, .. } = link;
    let given = |text: &String| !text.trim().is_empty();
    let called = title.filter(given).or(Some(name).filter(given));
    match (called, description.filter(given)) {
        (Some(called), Some(description)) => format!("{called} ({description}): {uri}"),
        (Some(called), None) => format!("{called}: {uri}"),
        (None, Some(description)) => format!("{uri} ({description})"),
        (None, None) => uri,
    }
}

#[cfg(test)]
mod tests {
    use super::{known, link_as_text};
    use crate::mcp::version::ContentTypes::{self, Audio, First, ResourceLinks};
    use crate::model::message::{PromptMessage, ResourceLink};

    const LINK: &str = r#"{"type":"resource_link","uri":"a:b","name":"n","description":"d"}"#;
    const SOUND: &str =
        r#"{"type":"audio","data":"AA==","mimeType":"audio/wav","annotations":{"priority":1}}"#;

    fn converted(types: ContentTypes) -> String {
        let json =
            format!(r#"[{{"role":"user","content":{LINK}}},{{"role":"assistant","content":{SOUND}}}]"#);
        let messages: Vec<PromptMessage> = serde_json::from_str(&json).unwrap();
        serde_json::to_string(&known(&messages, types)).unwrap()
    }

    #[test]
    fn a_link_is_written_without_empty_members() {
        for (title, name, description, expected) in [
            (Some("t"), "n", Some("d"), "t (d): a:b"),
            (Some(""), "n", Some(" "), "n: a:b"),
            (None, "", Some("d"), "a:b (d)"),
            (Some(""), "", None, "a:b"),
        ] {
            let text = |text: &str| text.to_owned();
            let link = ResourceLink {
                uri: text("a:b"),
                name: text(name),
                title: title.map(text),
                description: description.map(text),
                mime_type: None,
                size: None,
                icons: None,
            };
            assert_eq!(link_as_text(link), expected);
        }
    }

    #[test]
    fn unknown_content_types_are_sent_as_known_ones() {
        let both = |link: &str, sound: &str| {
            format!(r#"[{{"role":"user","content":{link}}},{{"role":"assistant","content":{sound}}}]"#)
        };
        let line = r#"{"type":"text","text":"n (d): a:b"}"#;
        let embedded = concat!(
            r#"{"type":"resource","resource":{"uri":"prompt-message:1","mimeType":"audio/wav","blob":"AA=="},"#,
            r#""annotations":{"priority":1}}"#
        );
        assert_eq!(converted(ResourceLinks), both(LINK, SOUND));
        assert_eq!(converted(Audio), both(line, SOUND));
        assert_eq!(converted(First), both(line, embedded));
    }
}
