//! What a result is about, alike in both eras: a list, contents, messages. Each era adds what it says besides.

use std::borrow::Cow;

use serde::Serialize;

use super::contents::ContentsTold;
use super::definition::Definitions;
use crate::model::fault::Fault;
use crate::model::message::{ContentKind, EmbeddedResource, Message};
use crate::model::operation::{Outcome, Page};
use crate::model::prompt::Prompt;
use crate::model::resource::Resource;
use crate::model::template::ResourceTemplate;

/// The members of a result that its method brings.
#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub(super) enum Subject<'a> {
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
        messages: Cow<'a, [Message]>,
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

impl<'a> Subject<'a> {
    /// What an outcome is told as. `next_cursor` belongs to a list that goes on.
    pub(super) fn of(outcome: &'a Outcome, next_cursor: Option<&'a str>) -> Self {
        match outcome {
            Outcome::Resources(page) => Self::Resources { resources: Definitions(&page.items), next_cursor },
            Outcome::Templates(page) => {
                Self::Templates { resource_templates: Definitions(&page.items), next_cursor }
            }
            Outcome::Prompts(page) => Self::Prompts { prompts: Definitions(&page.items), next_cursor },
            Outcome::Contents(contents) => Self::Contents { contents: ContentsTold(contents) },
            Outcome::Prompt(told) => Self::Messages {
                description: told.description.as_deref(),
                messages: Cow::Borrowed(&told.messages),
            },
            Outcome::Completion(completion) => Self::Completion {
                completion: Completion {
                    values: &completion.values,
                    total: completion.total,
                    has_more: completion.total > completion.values.len(),
                },
            },
        }
    }

    /// Whether a modern client is told for how long it may keep the result (2026-07-28, `CacheableResult`).
    pub(super) fn is_cacheable(&self) -> bool {
        !matches!(self, Self::Messages { .. } | Self::Completion { .. })
    }

    /// About how many bytes it will take, where they may be many, so that the output grows once.
    pub(super) fn encoded_len(&self) -> usize {
        match self {
            Self::Contents { contents } => contents.encoded_len(),
            Self::Messages { messages, .. } => messages.iter().map(encoded_len).sum(),
            _ => 0,
        }
    }
}

/// What an encoded message takes besides its long text, roughly.
const MESSAGE_OVERHEAD: usize = 256;

/// About how many bytes a message takes.
fn encoded_len(message: &Message) -> usize {
    let long = match &message.content.kind {
        ContentKind::Text(text) => text.len(),
        ContentKind::Image(media) | ContentKind::Audio(media) => media.data.len(),
        ContentKind::Resource(EmbeddedResource { text, blob, .. }) => {
            text.iter().chain(blob).map(String::len).sum()
        }
        ContentKind::ResourceLink(_) => 0,
    };
    // An eighth more, for what JSON escapes.
    long + long / 8 + MESSAGE_OVERHEAD
}

/// The position of a list that goes on: what the last of its definitions is called.
pub(super) fn last_of(outcome: &Outcome) -> Option<&str> {
    fn last<'a, T>(page: &'a Page<T>, called: impl Fn(&'a T) -> &'a str) -> Option<&'a str> {
        page.items.last().filter(|_| page.more).map(|item| called(item))
    }
    match outcome {
        Outcome::Resources(page) => last(page, |resource| resource.uri.as_str()),
        Outcome::Templates(page) => last(page, |template| template.uri_template.as_str()),
        Outcome::Prompts(page) => last(page, |prompt| prompt.name.as_str()),
        Outcome::Contents(_) | Outcome::Prompt(_) | Outcome::Completion(_) => None,
    }
}

/// Appends `value` as JSON.
///
/// # Errors
/// [`Fault::Internal`] where what is stored cannot be told: text that is no text.
pub(super) fn append(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), Fault> {
    serde_json::to_writer(out, value)
        .map_err(|error| Fault::Internal(format!("cannot encode a result: {error}")))
}
