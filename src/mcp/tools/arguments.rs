//! The arguments of each tool. What breaks the schema of a tool is [`Fault::InvalidParams`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Number;
use serde_json::value::RawValue;

use crate::mcp::call::{members, strings};
use crate::mcp::wire::members::{Members, text_of};
use crate::model::fault::{Fault, shortened};
use crate::model::ids::ResourceUri;
use crate::model::prompt::PromptName;

/// Of `list_resources` and `list_prompts`.
#[derive(Debug)]
pub(super) struct ListArguments<'a> {
    pub(super) cursor: Option<Cow<'a, str>>,
}

/// Of `search`.
#[derive(Debug)]
pub(super) struct SearchArguments<'a> {
    pub(super) query: Cow<'a, str>,
}

/// Of `fetch`.
#[derive(Debug)]
pub(super) struct FetchArguments<'a> {
    pub(super) id: Cow<'a, str>,
}

/// Of `read_resource`.
#[derive(Debug)]
pub(super) struct ReadArguments {
    pub(super) uri: ResourceUri,
    /// In bytes of the concatenated texts.
    pub(super) offset: usize,
}

/// Of `get_prompt`.
#[derive(Debug)]
pub(super) struct PromptArguments {
    pub(super) name: PromptName,
    pub(super) arguments: BTreeMap<String, String>,
}

impl<'a> ListArguments<'a> {
    pub(super) fn read(json: &'a str) -> Result<Self, Fault> {
        Ok(Self { cursor: Arguments::read(json, &["cursor"])?.string("cursor")? })
    }
}

impl<'a> SearchArguments<'a> {
    pub(super) fn read(json: &'a str) -> Result<Self, Fault> {
        Ok(Self { query: Arguments::read(json, &["query"])?.required_string("query")? })
    }
}

impl<'a> FetchArguments<'a> {
    pub(super) fn read(json: &'a str) -> Result<Self, Fault> {
        Ok(Self { id: Arguments::read(json, &["id"])?.required_string("id")? })
    }
}

impl ReadArguments {
    pub(super) fn read(json: &str) -> Result<Self, Fault> {
        let arguments = Arguments::read(json, &["uri", "offset"])?;
        let offset = arguments.get("offset").map(integer).transpose()?;
        let uri = ResourceUri::parse(&arguments.required_string("uri")?)
            .map_err(|error| Fault::invalid_params(format!("arguments.uri {error}")))?;
        Ok(Self { uri, offset: offset.unwrap_or_default() })
    }
}

impl PromptArguments {
    pub(super) fn read(json: &str) -> Result<Self, Fault> {
        let given = Arguments::read(json, &["name", "arguments"])?;
        let name = given.required_string("name")?;
        let arguments = given.get("arguments").map(|raw| strings("arguments.arguments", raw.get()));
        let arguments = arguments.transpose()?.unwrap_or_default();
        let name = PromptName::parse(&name).map_err(|_| Fault::unknown_prompt(&name))?;
        Ok(Self { name, arguments })
    }
}

/// The arguments of a tool, of which all have known names.
struct Arguments<'a>(Members<'a>);

impl<'a> Arguments<'a> {
    fn read(json: &'a str, known: &[&str]) -> Result<Self, Fault> {
        let members = members("arguments", json)?;
        if let Some(unknown) = members.names().find(|name| !known.contains(name)) {
            let (unknown, known) = (shortened(unknown), known.join("` or `"));
            let wrong = format!("arguments has an unknown member `{unknown}`; expected `{known}`");
            return Err(Fault::invalid_params(wrong));
        }
        Ok(Self(members))
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.get(name)
    }

    fn string(&self, name: &str) -> Result<Option<Cow<'a, str>>, Fault> {
        let wrong = || Fault::invalid_params(format!("arguments.{name} must be a string"));
        self.get(name).map(|raw| text_of(raw).ok_or_else(wrong)).transpose()
    }

    fn required_string(&self, name: &str) -> Result<Cow<'a, str>, Fault> {
        let missing = || Fault::invalid_params(format!("arguments.{name} is required"));
        self.string(name)?.ok_or_else(missing)
    }
}

/// An integer as JSON Schema defines it: a number without a fraction, however it is written.
fn integer(raw: &RawValue) -> Result<usize, Fault> {
    let number = serde_json::from_str::<Number>(raw.get()).ok().map(|number| number.to_string());
    let whole = number.as_deref().map(|text| text.strip_suffix(".0").unwrap_or(text));
    whole.and_then(|whole| whole.parse().ok()).ok_or_else(|| {
        let found = shortened(raw.get());
        Fault::invalid_params(format!("arguments.offset must be an integer from 0 on, found {found}"))
    })
}
