//! The members of a result that both eras encode in the same way: a list, contents, messages.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::contents::EncodedContents;
use super::definition::Definitions;
use super::skill_entry::SkillEntry;
use super::tools::{Block, ListedTool};
use crate::model::call::{self, Contents, ListPage, Messages};
use crate::model::fault::Fault;
use crate::model::listed::ListedResource;
use crate::model::message::{ContentKind, EmbeddedResource, PromptMessage};
use crate::model::prompt::Prompt;
use crate::model::template::ResourceTemplate;

/// The members of a result that its method defines. An era adds members of its own.
#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub(super) enum ResultMembers<'a> {
    /// Of `resources/list`.
    Resources {
        resources: Definitions<'a, ListedResource>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    },
    /// Of `resources/templates/list`.
    Templates {
        resource_templates: Definitions<'a, Arc<ResourceTemplate>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    },
    /// Of `prompts/list`.
    Prompts {
        prompts: Definitions<'a, Arc<Prompt>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    },
    /// Of `skills/list`.
    Skills {
        skills: Vec<SkillEntry<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    },
    /// Of `skills/get`.
    Skill { skill: SkillEntry<'a> },
    /// Of `resources/read`.
    Contents { contents: EncodedContents<'a> },
    /// Of `prompts/get`.
    Messages {
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        messages: Cow<'a, [PromptMessage]>,
    },
    /// Of `completion/complete`.
    Completion { completion: Completion<'a> },
    /// Of `tools/list`.
    Tools {
        tools: Vec<ListedTool<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    },
    /// Of `tools/call`.
    Blocks {
        content: &'a [Block<'a>],
        #[serde(skip_serializing_if = "Option::is_none")]
        structured_content: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
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
    /// The result of a list. `next_cursor` belongs to one that continues.
    pub(super) fn page(page: &'a ListPage, next_cursor: Option<&'a str>) -> Self {
        match page {
            ListPage::Resources(page) => Self::Resources { resources: Definitions(&page.items), next_cursor },
            ListPage::Templates(page) => {
                Self::Templates { resource_templates: Definitions(&page.items), next_cursor }
            }
            ListPage::Prompts(page) => Self::Prompts { prompts: Definitions(&page.items), next_cursor },
        }
    }

    /// The result of `resources/read`.
    pub(super) fn contents(contents: &'a Contents) -> Self {
        Self::Contents { contents: EncodedContents(contents) }
    }

    /// The result of `prompts/get`.
    pub(super) fn messages(prompt: &'a Messages) -> Self {
        let messages = Cow::Borrowed(&prompt.messages[..]);
        Self::Messages { description: prompt.description.as_deref(), messages }
    }

    /// The result of `completion/complete`.
    pub(super) fn completion(completion: &'a call::Completion) -> Self {
        let has_more = completion.total > completion.values.len();
        let completion = Completion { values: &completion.values, total: completion.total, has_more };
        Self::Completion { completion }
    }

    /// The result of a tool that is shown as content blocks.
    pub(super) fn blocks(content: &'a [Block<'a>]) -> Self {
        Self::Blocks { content, structured_content: None, is_error: false }
    }

    /// Whether a modern result carries cache hints (2026-07-28, `CacheableResult`).
    pub(super) fn is_cacheable(&self) -> bool {
        !matches!(self, Self::Messages { .. } | Self::Completion { .. } | Self::Blocks { .. })
    }

    /// The approximate encoded size if it may be large, so that the buffer grows once.
    pub(super) fn encoded_len(&self) -> usize {
        match self {
            Self::Contents { contents } => contents.encoded_len(),
            Self::Messages { messages, .. } => messages.iter().map(encoded_len).sum(),
            Self::Blocks { content, structured_content, .. } => {
                let object = structured_content.map_or(0, |object| object.get().len());
                content.iter().map(Block::encoded_len).sum::<usize>() + object
            }
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

/// Appends `value` as JSON.
///
/// # Errors
/// [`Fault::Internal`] if stored text is not UTF-8.
pub(super) fn append(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), Fault> {
    serde_json::to_writer(out, value).map_err(Fault::cannot_encode)
}
