//! Resources, resource templates and prompts as encoded in lists, the same for every revision.
//!
//! Older revisions lack some of these members (`title`, `_meta` and `lastModified` came with 2025-06-18, `icons` with
//! 2025-11-25). They are sent nevertheless: no schema forbids additional members, clients ignore unknown ones, and one
//! encoding serves all revisions.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde::ser::{Error, SerializeSeq, SerializeStruct, Serializer};
use serde_json::value::RawValue;
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

use super::wire::members::{Members, Shape};
use crate::model::listed::{ListedResource, MountedFile};
use crate::model::prompt::{Prompt, PromptDefinition};
use crate::model::resource::{DIRECTORY, Definition, Resource};
use crate::model::template::ResourceTemplate;

/// The definitions of a page.
pub(super) struct Definitions<'a, T>(pub(super) &'a [T]);

impl Serialize for Definitions<'_, ListedResource> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(self.0.len()))?;
        // The URI of a file is in two parts; they are joined in one buffer for all.
        let mut uri = String::new();
        for listed in self.0 {
            match listed {
                ListedResource::Registered(resource) => sequence.serialize_element(&Listed::of(resource))?,
                ListedResource::File(file) => {
                    uri.clear();
                    uri.extend([file.mount.uri.as_str(), &*file.suffix]);
                    sequence.serialize_element(&Listed::of_file(file, &uri))?;
                }
            }
        }
        sequence.end()
    }
}

impl Serialize for Definitions<'_, Arc<ResourceTemplate>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|template| ListedTemplate {
            uri_template: template.uri_template.as_str(),
            definition: &template.definition,
        }))
    }
}

impl Serialize for Definitions<'_, Arc<Prompt>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|prompt| ListedPrompt::of(prompt)))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedTemplate<'a> {
    uri_template: &'a str,
    #[serde(flatten)]
    definition: &'a Definition,
}

#[derive(Serialize)]
struct ListedPrompt<'a> {
    name: &'a str,
    #[serde(flatten)]
    definition: &'a PromptDefinition,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    arguments: Vec<ListedArgument<'a>>,
}

#[derive(Serialize)]
struct ListedArgument<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    required: Option<bool>,
}

impl<'a> ListedPrompt<'a> {
    fn of(prompt: &'a Prompt) -> Self {
        let arguments = prompt.arguments.iter().map(|argument| ListedArgument {
            name: &argument.name,
            title: argument.title.as_deref(),
            description: argument.description.as_deref(),
            required: argument.required,
        });
        Self { name: prompt.name.as_str(), definition: &prompt.definition, arguments: arguments.collect() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    uri: &'a str,
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    annotations: Annotations<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icons: Option<&'a RawValue>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
}

/// The MIME type of a resource whose content is a directory of a connection.
fn directory(resource: &Resource) -> Option<&'static str> {
    resource.source.as_ref().is_some_and(|source| source.is_directory()).then_some(DIRECTORY)
}

impl<'a> Listed<'a> {
    fn of(resource: &'a Resource) -> Self {
        let definition = &resource.definition;
        Self {
            uri: resource.uri.as_str(),
            name: Cow::Borrowed(&definition.name),
            title: definition.title.as_deref(),
            description: definition.description.as_deref(),
            mime_type: definition.mime_type.as_deref().or_else(|| directory(resource)),
            annotations: Annotations {
                sent: definition.annotations.as_deref(),
                last_modified: resource.last_modified,
            },
            size: resource.size(),
            icons: definition.icons.as_deref(),
            meta: definition.meta.as_deref(),
        }
    }

    fn of_file(file: &'a MountedFile, uri: &'a str) -> Self {
        let name = file.name();
        Self {
            uri,
            title: None,
            description: None,
            mime_type: ::skill::mime_type_by_name(&name),
            name,
            annotations: Annotations {
                sent: file.mount.annotations.as_deref(),
                last_modified: file.modified,
            },
            size: file.size,
            icons: None,
            meta: None,
        }
    }
}

/// The registered annotations, with `lastModified` added by the gateway if they lack it.
struct Annotations<'a> {
    sent: Option<&'a RawValue>,
    last_modified: OffsetDateTime,
}

impl Annotations<'_> {
    /// Those that were sent, complete.
    fn complete<'s>(&self, sent: &'s RawValue) -> Result<Cow<'s, RawValue>, String> {
        let members = Members::read(sent.get()).map_err(|error| error.to_string())?;
        if members.shape() != Shape::Object || members.has("lastModified") {
            return Ok(Cow::Borrowed(sent));
        }
        self.extended(sent.get(), members.is_empty()).map(Cow::Owned)
    }

    fn extended(&self, sent: &str, empty: bool) -> Result<Box<RawValue>, String> {
        let open = sent.strip_suffix('}').unwrap_or(sent);
        let comma = if empty { "" } else { "," };
        let time = timestamp(self.last_modified).map_err(|error| error.to_string())?;
        RawValue::from_string(format!(r#"{open}{comma}"lastModified":"{time}"}}"#))
            .map_err(|error| error.to_string())
    }
}

impl Serialize for Annotations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(sent) = self.sent else {
            // Most have none: not worth parsing and validating.
            let mut own = serializer.serialize_struct("Annotations", 1)?;
            own.serialize_field("lastModified", &timestamp(self.last_modified).map_err(S::Error::custom)?)?;
            return own.end();
        };
        self.complete(sent).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// RFC 3339 in UTC, whole seconds.
fn timestamp(time: OffsetDateTime) -> Result<String, time::error::Format> {
    time.to_offset(UtcOffset::UTC).truncate_to_second().format(&Rfc3339)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::Listed;
    use crate::mcp::fixtures::bare;

    fn annotations(sent: Option<&str>) -> String {
        let listed = serde_json::to_string(&Listed::of(&bare("a:b", sent))).unwrap();
        let start = r#"{"uri":"a:b","name":"n","annotations":"#;
        listed.strip_prefix(start).and_then(|rest| rest.strip_suffix('}')).unwrap().to_owned()
    }

    #[test]
    fn last_modified_is_added_where_the_owner_sent_none() {
        let last_modified = r#""lastModified":"2026-03-04T10:30:05Z"}"#;
        assert_eq!(annotations(None), format!("{{{last_modified}"));
        assert_eq!(annotations(Some("{}")), format!("{{{last_modified}"));
        assert_eq!(annotations(Some("{ }")), format!("{{ {last_modified}"));
        assert_eq!(annotations(Some(r#"{"a":{}}"#)), format!(r#"{{"a":{{}},{last_modified}"#));
        assert_eq!(annotations(Some("{\"a\":1\n}")), format!("{{\"a\":1\n,{last_modified}"));
    }

    #[test]
    fn annotations_of_the_owner_are_unchanged() {
        for sent in [r#"{"lastModified":"2001"}"#, r#"{ "last\u004dodified" : null }"#, "[]", "null"] {
            assert_eq!(annotations(Some(sent)), sent);
        }
    }

    #[test]
    fn a_resource_of_one_part_has_a_size() {
        let mut resource = crate::mcp::fixtures::full();
        let size = |resource: &_| serde_json::to_value(Listed::of(resource)).unwrap().get("size").cloned();
        assert_eq!(size(&resource), Some(Value::from(6)));
        resource.parts.push(resource.parts[0].clone());
        assert_eq!(size(&resource), None);
    }
}
