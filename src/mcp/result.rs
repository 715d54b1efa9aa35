//! The members of a result that both eras encode alike: a list, contents, messages.

use std::borrow::Cow;

use serde::Serialize;

use super::contents::ContentsTold;
use super::definition::Definitions;
use crate::model::call::{CallResult, Page};
use crate::model::fault::Fault;
use crate::model::message::{ContentKind, EmbeddedResource, PromptMessage};
use crate::model::prompt::Prompt;
use crate::model::resource::Resource;
use crate::model::template::ResourceTemplate;

/// The members of a result that its method defines. An era adds members of its own.
#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub(super) enum ResultMembers<'a> {
    /// Of `resources/list`.
    Resources {
        resources: Definitions<'a, Resource>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    },
    /// Of `resources/templates/list`.
    Templates {
        resource_templates: Definitions<'a, ResourceTemplate>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    },
    /// Of `prompts/list`.
    Prompts {
        prompts: Definitions<'a, Prompt>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    },
    /// Of `resources/read`.
    Contents { contents: ContentsTold<'a> },
    /// Of `prompts/get`.
    Messages {
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        messages: Cow<'a, [PromptMessage]>,
    },
    /// Of `completion/complete`.
    Completion { completion: Completion<'a> },
    /// Of `tools/list`: there are none.
    Tools { tools: [(); 0] },
}

/// `CompleteResult.completion` of the specification.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Completion<'a> {
    values: &'a [String],
    total: usize,
    has_more: bool,
}

impl<'a> ResultMembers<'a> {
    /// The members of a result. `next_cursor` belongs to a list that continues.
    pub(super) fn of(result: &'a CallResult, next_cursor: Option<&'a str>) -> Self {
        match result {
            CallResult::Resources(page) => {
                Self::Resources { resources: Definitions(&page.items), next_cursor }
            }
            CallResult::Templates(page) => {
                Self::Templates { resource_templates: Definitions(&page.items), next_cursor }
            }
            CallResult::Prompts(page) => Self::Prompts { prompts: Definitions(&page.items), next_cursor },
            CallResult::Contents(contents) => Self::Contents { contents: ContentsTold(contents) },
            CallResult::Prompt(told) => Self::Messages {
                description: told.description.as_deref(),
                messages: Cow::Borrowed(&told.messages),
            },
            CallResult::Completion(completion) => Self::Completion {
                completion: Completion {
                    values: &completion.values,
                    total: completion.total,
                    has_more: completion.total > completion.values.len(),
                },
            },
            CallResult::Tools => Self::Tools { tools: [] },
        }
    }

    /// Whether a modern result carries cache hints (2026-07-28, `CacheableResult`).
    pub(super) fn is_cacheable(&self) -> bool {
        !matches!(self, Self::Messages { .. } | Self::Completion { .. })
    }

    /// The approximate encoded size where it may be large, so that the buffer grows once.
    pub(super) fn encoded_len(&self) -> usize {
        match self {
            Self::Contents { contents } => contents.encoded_len(),
            Self::Messages { messages, .. } => messages.iter().map(encoded_len).sum(),
            _ => 0,
        }
    }
}

/// The approximate size of an encoded message without its text or data.
const MESSAGE_OVERHEAD: usize = 256;

/// The approximate encoded size of a message.
fn encoded_len(message: &PromptMessage) -> usize {
    let long = match &message.content.kind {
        ContentKind::Text(text) => text.len(),
        ContentKind::Image(media) | ContentKind::Audio(media) => media.data.len(),
        ContentKind::Resource(EmbeddedResource { text, blob, .. }) => {
            text.iter().chain(blob).map(String::len).sum()
        }
        ContentKind::ResourceLink(_) => 0,
    };
    // An eighth more for JSON escapes.
    long + long / 8 + MESSAGE_OVERHEAD
}

/// The position of a list that continues: the key of its last definition.
pub(super) fn last_of(result: &CallResult) -> Option<&str> {
    fn last<'a, T>(page: &'a Page<T>, key: impl Fn(&'a T) -> &'a str) -> Option<&'a str> {
        page.items.last().filter(|_| page.more).map(|item| key(item))
    }
    match result {
        CallResult::Resources(page) => last(page, |resource| resource.uri.as_str()),
        CallResult::Templates(page) => last(page, |template| template.uri_template.as_str()),
        CallResult::Prompts(page) => last(page, |prompt| prompt.name.as_str()),
        CallResult::Contents(_) | CallResult::Prompt(_) | CallResult::Completion(_) | CallResult::Tools => {
            None
        }
    }
}

/// Appends `value` as JSON.
///
/// # Errors
/// [`Fault::Internal`] where stored text is not UTF-8.
pub(super) fn append(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), Fault> {
    serde_json::to_writer(out, value)
        .map_err(|error| Fault::Internal(format!("cannot encode a result: {error}")))
}
