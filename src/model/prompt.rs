//! Prompts: messages rendered with a client's arguments.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::allocated::{allocated, behind_arc, texts};
use super::audit::digest::Digest;
use super::audit::fingerprint::{Fingerprint, Parts};
use super::completion::CompletionValues;
use super::content::{ContentHash, NewContent};
use super::definition::{DefinitionKind, Difference};
use super::fault::{Fault, shortened};
use super::json::raw_text;
use super::label::Labels;
use super::scope::{ChangeKind, Revision};

/// Maximum length of a prompt's name in bytes.
pub const MAX_NAME_BYTES: usize = 512;

/// The name of a prompt, compared byte for byte.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct PromptName(Arc<str>);

/// Why a text is not the name of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PromptNameError {
    /// Empty or longer than [`MAX_NAME_BYTES`].
    #[error("must have 1 to {MAX_NAME_BYTES} bytes")]
    Length,
    /// Contains a control character.
    #[error("holds a control character")]
    Control,
}

impl PromptName {
    /// Parses a name of any characters except control characters.
    ///
    /// # Errors
    /// If the length is out of range or there is a control character.
    pub fn parse(text: &str) -> Result<Self, PromptNameError> {
        if !(1..=MAX_NAME_BYTES).contains(&text.len()) {
            Err(PromptNameError::Length)
        } else if text.chars().any(char::is_control) {
            Err(PromptNameError::Control)
        } else {
            Ok(Self(text.into()))
        }
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for PromptName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PromptName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PromptName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The definition of a prompt without its name, arguments and messages.
#[derive(Debug, Clone, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptDefinition {
    /// Title for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Purpose of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Icons as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub icons: Option<Box<RawValue>>,
    /// `_meta` as sent.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub meta: Option<Box<RawValue>>,
}

impl PartialEq for PromptDefinition {
    fn eq(&self, other: &Self) -> bool {
        (&self.title, &self.description) == (&other.title, &other.description)
            && raw_text(self.icons.as_deref()) == raw_text(other.icons.as_deref())
            && raw_text(self.meta.as_deref()) == raw_text(other.meta.as_deref())
    }
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Argument {
    /// Name in the messages and for clients.
    pub name: String,
    /// Title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Purpose of the argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether clients must provide it; absent means no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Completion values, or where they come from; not part of lists of prompts.
    #[serde(default, skip_serializing_if = "CompletionValues::is_empty")]
    pub completions: CompletionValues,
    /// Whether the completions are the only values; absent means no. Not part of lists of prompts; the tool of the prompt
    /// lists the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<bool>,
}

impl Argument {
    fn heap(&self) -> usize {
        let optional = [&self.title, &self.description].map(Option::as_deref);
        texts([self.name.as_str()]) + texts(optional.into_iter().flatten()) + self.completions.heap()
    }

    /// The only values; `None` if every text is one.
    pub fn choices(&self) -> Option<&[String]> {
        (self.closed == Some(true)).then(|| self.completions.listed())
    }

    /// Whether a text is a value.
    pub fn admits(&self, value: &str) -> bool {
        self.choices().is_none_or(|choices| choices.iter().any(|choice| choice == value))
    }

    /// Whether both are equal in a list of prompts, and in the list of the tools that prompts are.
    pub fn is_listed_as(&self, other: &Self) -> bool {
        (&self.name, &self.title, &self.description, &self.required)
            == (&other.name, &other.title, &other.description, &other.required)
            && self.choices() == other.choices()
    }
}

/// A registered prompt.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// Name of the prompt.
    pub name: PromptName,
    /// Definition.
    pub definition: PromptDefinition,
    /// Labels of which a caller must have one to see it.
    pub labels: Labels,
    /// Arguments, in order.
    pub arguments: Vec<Argument>,
    /// Hash of its messages, a JSON array.
    pub messages: ContentHash,
    /// The revision of the agent's scope that last changed it.
    pub revision: Revision,
}

impl Prompt {
    /// Checks that the given arguments exist and have values that they admit.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], naming the first that does not.
    pub fn check_arguments(&self, given: &BTreeMap<String, String>) -> Result<(), Fault> {
        for (name, value) in given {
            let declared = self.arguments.iter().find(|argument| argument.name == *name);
            if !declared.ok_or_else(|| Fault::unknown("argument", name))?.admits(value) {
                let value = shortened(value);
                let wrong = format!("argument {name}: expected one of its completions, found `{value}`");
                return Err(Fault::invalid_params(wrong));
            }
        }
        Ok(())
    }

    /// The required arguments that are not given.
    pub fn missing<'p>(&'p self, given: &BTreeMap<String, String>) -> impl Iterator<Item = &'p Argument> {
        let required = self.arguments.iter().filter(|argument| argument.required == Some(true));
        required.filter(|argument| !given.contains_key(&argument.name))
    }
}

/// A prompt to be registered.
#[derive(Debug, Clone)]
pub struct NewPrompt {
    /// Name of the prompt.
    pub name: PromptName,
    /// Definition.
    pub definition: PromptDefinition,
    /// Labels of which a caller must have one to see it.
    pub labels: Labels,
    /// Arguments, in order.
    pub arguments: Vec<Argument>,
    /// Messages, a JSON array of [`PromptMessage`](super::message::PromptMessage).
    pub messages: NewContent,
}

impl DefinitionKind for Prompt {
    type Key = PromptName;
    type New = NewPrompt;

    const NAME: &'static str = "prompt";
    const LIST: &'static str = "prompts";
    const KEY: &'static str = "name";
    const ADDED: ChangeKind = ChangeKind::PromptAdded;
    const REMOVED: ChangeKind = ChangeKind::PromptRemoved;
    const IS_CHANGED_BY: fn(ChangeKind) -> bool = ChangeKind::is_of_prompt;
    const IS_RELISTED_BY: fn(ChangeKind) -> bool = ChangeKind::relists_prompts;

    fn parse_key(text: &str) -> Result<PromptName, Fault> {
        PromptName::parse(text).map_err(|error| Fault::invalid_params(format!("name {error}")))
    }

    fn key(&self) -> &PromptName {
        &self.name
    }

    fn key_of(new: &NewPrompt) -> &PromptName {
        &new.name
    }

    fn labels(&self) -> &Labels {
        &self.labels
    }

    fn labels_of(new: &NewPrompt) -> &Labels {
        &new.labels
    }

    fn memory(&self) -> usize {
        let Self { name, definition, labels, arguments, .. } = self;
        let raw = [&definition.icons, &definition.meta].map(Option::as_deref);
        let optional = [&definition.title, &definition.description].map(Option::as_deref);
        behind_arc(size_of::<Self>())
            + behind_arc(name.as_str().len())
            + labels.heap()
            + texts(optional.into_iter().flatten())
            + texts(raw.into_iter().flatten().map(RawValue::get))
            + allocated(arguments.capacity() * size_of::<Argument>())
            + arguments.iter().map(Argument::heap).sum::<usize>()
    }

    fn revision(&self) -> Revision {
        self.revision
    }

    fn contents(&self) -> Vec<(ContentHash, Option<usize>)> {
        vec![(self.messages, None)]
    }

    fn contents_of(new: &NewPrompt) -> impl Iterator<Item = (ContentHash, &Bytes)> {
        std::iter::once((new.messages.hash, &new.messages.bytes))
    }

    fn difference(&self, new: &NewPrompt) -> Option<Difference> {
        let contents = self.messages != new.messages.hash;
        let (old, asked) = (&self.arguments, &new.arguments);
        let same_length = old.len() == asked.len();
        let listed_alike = same_length && old.iter().zip(asked).all(|(old, asked)| old.is_listed_as(asked));
        let change = if listed_alike && self.definition == new.definition && self.labels == new.labels {
            (contents || old != asked).then_some(ChangeKind::PromptMessages)
        } else {
            Some(ChangeKind::PromptDefined)
        };
        change.map(|change| Difference { change, contents })
    }
}

impl Fingerprint for Prompt {
    fn fingerprint(&self) -> Digest {
        fingerprint(&self.name, &self.definition, &self.arguments, self.messages, &self.labels)
    }
}

impl Fingerprint for NewPrompt {
    fn fingerprint(&self) -> Digest {
        fingerprint(&self.name, &self.definition, &self.arguments, self.messages.hash, &self.labels)
    }
}

fn fingerprint(
    name: &PromptName,
    definition: &PromptDefinition,
    arguments: &[Argument],
    messages: ContentHash,
    labels: &Labels,
) -> Digest {
    let known = Parts::default().part(name.as_str()).json(definition).json(&arguments).part(messages.0);
    known.unless_default(labels).digest()
}

#[cfg(test)]
mod tests {
    use super::{PromptName, PromptNameError};

    #[test]
    fn name_has_no_control_characters_and_a_bounded_length() {
        for good in ["a", "code review/v2", "研究", &"a".repeat(512)] {
            assert_eq!(PromptName::parse(good).map(|name| name.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", &"a".repeat(513)] {
            assert_eq!(PromptName::parse(bad), Err(PromptNameError::Length));
        }
        for bad in ["a\0", "a\nb", "\u{7f}"] {
            assert_eq!(PromptName::parse(bad), Err(PromptNameError::Control));
        }
    }
}
