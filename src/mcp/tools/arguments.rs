//! The arguments of each tool. What breaks the schema of a tool is [`Fault::InvalidParams`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::mcp::call::strings;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::prompt::PromptName;

/// Of `list_resources` and `list_prompts`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArguments {
    #[serde(default, deserialize_with = "given")]
    pub(super) cursor: Option<String>,
}

/// Of `search`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchArguments<'a> {
    #[serde(borrow)]
    pub(super) query: Cow<'a, str>,
}

/// Of `fetch`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FetchArguments<'a> {
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
}

/// Of `read_resource`.
#[derive(Debug)]
pub(super) struct ReadArguments {
    pub(super) uri: ResourceUri,
    /// In bytes of the concatenated texts.
    pub(super) offset: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
    #[serde(default, deserialize_with = "integer")]
    offset: usize,
}

/// Of `get_prompt`.
#[derive(Debug)]
pub(super) struct PromptArguments {
    pub(super) name: PromptName,
    pub(super) arguments: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Get<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "given")]
    arguments: Option<&'a RawValue>,
}

/// An integer as JSON Schema defines it: a number without a fraction, however it is written.
fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    let text = number.to_string();
    let whole = text.strip_suffix(".0").unwrap_or(&text);
    whole
        .parse()
        .map_err(|_| D::Error::custom(format!("offset: expected an integer from 0 on, found {text}")))
}

/// A member that may be absent and not `null`.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads the arguments of a tool.
pub(super) fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, Fault> {
    serde_json::from_str(json).map_err(|error| Fault::invalid_params(format!("arguments: {error}")))
}

impl ReadArguments {
    pub(super) fn read(json: &str) -> Result<Self, Fault> {
        let Read { uri, offset } = parse(json)?;
        let uri = ResourceUri::parse(&uri)
            .map_err(|error| Fault::invalid_params(format!("arguments.uri {error}")))?;
        Ok(Self { uri, offset })
    }
}

impl PromptArguments {
    pub(super) fn read(json: &str) -> Result<Self, Fault> {
        let Get { name, arguments } = parse(json)?;
        let arguments = arguments.map(|raw| strings("arguments.arguments", raw.get())).transpose()?;
        let name = PromptName::parse(&name).map_err(|_| Fault::unknown_prompt(&name))?;
        Ok(Self { name, arguments: arguments.unwrap_or_default() })
    }
}
