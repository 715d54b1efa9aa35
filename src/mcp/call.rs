//! Calls: the requests that both eras share, with parsed parameters.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use uri_template::iri::encode_literals;

use super::wire::Params;
use super::wire::members::{Members, Shape, text_of};
use crate::model::call::{CompletionRequest, List, Reference};
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::method::Method;
use crate::model::prompt::PromptName;

/// A request of a method that both eras have, with parsed parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call<'a> {
    /// `resources/list`, `resources/templates/list` or `prompts/list`.
    List {
        /// The requested list.
        list: List,
        /// The cursor as sent, not verified yet.
        cursor: Option<Cow<'a, str>>,
    },
    /// `resources/read`.
    ReadResource {
        /// The URI of the resource.
        uri: ResourceUri,
    },
    /// `prompts/get`.
    GetPrompt {
        /// The name of the prompt.
        name: PromptName,
        /// The values of its arguments, by name.
        arguments: Arc<BTreeMap<String, String>>,
    },
    /// `completion/complete`.
    Complete(CompletionRequest),
    /// About skills.
    Skills(SkillsCall<'a>),
    /// `tools/list`.
    ListTools {
        /// The cursor as sent, not verified yet.
        cursor: Option<Cow<'a, str>>,
    },
    /// `tools/call`.
    CallTool {
        /// The name of the tool.
        name: Cow<'a, str>,
        /// Its arguments as sent, of any type: an unknown tool is refused before they are read.
        arguments: &'a str,
    },
}

/// A call about skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillsCall<'a> {
    /// `skills/list`.
    List {
        /// The cursor as sent, not verified yet.
        cursor: Option<Cow<'a, str>>,
    },
    /// `skills/get`.
    Get {
        /// The URI of the `SKILL.md`.
        uri: ResourceUri,
    },
    /// `resources/directory/read`.
    ReadDirectory {
        /// The URI of the directory.
        uri: ResourceUri,
        /// The cursor as sent, not verified yet.
        cursor: Option<Cow<'a, str>>,
    },
}

/// A definition that a call names. If labels hide it, the answer is that of an unknown definition; only the audit log
/// records the difference.
#[derive(Debug, Clone, Copy)]
pub(super) enum NamedDefinition<'a> {
    /// The prompt of this name.
    Prompt(&'a str),
    /// The template of this text.
    Template(&'a str),
    /// The skill or directory with this URI.
    Skill(&'a ResourceUri),
}

impl Call<'_> {
    /// The definition that the call names; `None` also for `resources/read`: `Fault::ResourceNotFound` already contains
    /// its URI.
    pub(super) fn names(&self) -> Option<NamedDefinition<'_>> {
        match self {
            Self::GetPrompt { name, .. } => Some(NamedDefinition::Prompt(name.as_str())),
            Self::Complete(request) => Some(match &request.reference {
                Reference::Prompt(name) => NamedDefinition::Prompt(name),
                Reference::Template(text) => NamedDefinition::Template(text),
            }),
            Self::Skills(SkillsCall::Get { uri } | SkillsCall::ReadDirectory { uri, .. }) => {
                Some(NamedDefinition::Skill(uri))
            }
            Self::Skills(SkillsCall::List { .. })
            | Self::ReadResource { .. }
            | Self::List { .. }
            | Self::ListTools { .. }
            | Self::CallTool { .. } => None,
        }
    }
}

/// Reads the parameters of a method that both eras have. Other parameters are ignored.
///
/// # Errors
/// [`Fault::InvalidParams`]; [`Fault::MethodNotFound`] for a method that belongs to one dialect.
pub fn decode<'a>(method: Method, params: &Params<'a>) -> Result<Call<'a>, Fault> {
    params.check_shape()?;
    match method {
        Method::ListResources => list(List::Resources, params),
        Method::ListTemplates => list(List::Templates, params),
        Method::ReadResource => read_resource(params),
        Method::ListPrompts => list(List::Prompts, params),
        Method::GetPrompt => get_prompt(params),
        Method::Complete => complete(params),
        Method::ListTools => Ok(Call::ListTools { cursor: params.string("cursor")? }),
        Method::CallTool => call_tool(params),
        Method::ListSkills => Ok(Call::Skills(SkillsCall::List { cursor: params.string("cursor")? })),
        Method::GetSkill => uri(params).map(|uri| Call::Skills(SkillsCall::Get { uri })),
        Method::ReadDirectory => {
            let (uri, cursor) = (uri(params)?, params.string("cursor")?);
            Ok(Call::Skills(SkillsCall::ReadDirectory { uri, cursor }))
        }
        Method::Initialize
        | Method::Ping
        | Method::Discover
        | Method::Listen
        | Method::Subscribe
        | Method::Unsubscribe
        | Method::SetLevel => Err(Fault::MethodNotFound(method.name().to_owned())),
    }
}

fn list<'a>(list: List, params: &Params<'a>) -> Result<Call<'a>, Fault> {
    Ok(Call::List { list, cursor: params.string("cursor")? })
}

fn read_resource<'a>(params: &Params<'a>) -> Result<Call<'a>, Fault> {
    uri(params).map(|uri| Call::ReadResource { uri })
}

/// The URI among the parameters.
///
/// # Errors
/// [`Fault::InvalidParams`] if it is missing or not a URI.
pub(super) fn uri(params: &Params<'_>) -> Result<ResourceUri, Fault> {
    ResourceUri::parse(&params.required_string("uri")?)
        .map_err(|error| Fault::invalid_params(format!("params.uri {error}")))
}

/// A name that no prompt can have is answered like any unknown name.
fn get_prompt<'a>(params: &Params<'a>) -> Result<Call<'a>, Fault> {
    let name = params.required_string("name")?;
    let arguments =
        params.object("arguments")?.map(|raw| strings("params.arguments", raw.get())).transpose()?;
    let name = PromptName::parse(&name).map_err(|_| Fault::unknown_prompt(&name))?;
    Ok(Call::GetPrompt { name, arguments: arguments.unwrap_or_default().into() })
}

fn complete<'a>(params: &Params<'a>) -> Result<Call<'a>, Fault> {
    let reference = Nested::read("params.ref", params.required_object("ref")?)?;
    let argument = Nested::read("params.argument", params.required_object("argument")?)?;
    let context = params.object("context")?.map(|context| Nested::read("params.context", context));
    let context = context.transpose()?.map(|context| context.strings("arguments")).transpose()?;
    let reference = match &*reference.string("type")? {
        "ref/prompt" => Reference::Prompt(reference.string("name")?),
        "ref/resource" => Reference::Template(encode_literals(&reference.string("uri")?).into_owned()),
        _ => return Err(Fault::invalid_params("params.ref.type must be ref/prompt or ref/resource")),
    };
    Ok(Call::Complete(CompletionRequest {
        reference,
        argument: argument.string("name")?,
        value: argument.string("value")?,
        context: context.unwrap_or_default(),
    }))
}

fn call_tool<'a>(params: &Params<'a>) -> Result<Call<'a>, Fault> {
    let name = params.required_string("name")?;
    let arguments = params.raw("arguments").map_or("{}", RawValue::get);
    Ok(Call::CallTool { name, arguments })
}

/// An object among the parameters, with its path for error messages, such as `params.ref`.
struct Nested<'a> {
    path: &'static str,
    members: Members<'a>,
}

impl<'a> Nested<'a> {
    fn read(path: &'static str, raw: &'a RawValue) -> Result<Self, Fault> {
        Ok(Self { path, members: members(path, raw.get())? })
    }

    fn string(&self, name: &str) -> Result<String, Fault> {
        let text = self.members.get(name).and_then(text_of);
        let wrong = || Fault::invalid_params(format!("{}.{name} must be a string", self.path));
        text.map(Cow::into_owned).ok_or_else(wrong)
    }

    /// The members of an object, which are strings; none if it is absent.
    fn strings(&self, name: &str) -> Result<BTreeMap<String, String>, Fault> {
        let Some(raw) = self.members.get(name) else { return Ok(BTreeMap::new()) };
        strings(&format!("{}.{name}", self.path), raw.get())
    }
}

/// The members of an object among the parameters.
///
/// # Errors
/// [`Fault::InvalidParams`] if it is not an object or has a duplicate member.
pub(super) fn members<'a>(path: &str, json: &'a str) -> Result<Members<'a>, Fault> {
    let members = Members::read(json).ok().filter(|members| members.shape() == Shape::Object);
    let members = members.ok_or_else(|| Fault::invalid_params(format!("{path} must be an object")))?;
    match members.error() {
        Some(error) => Err(Fault::invalid_params(format!("{path} {error}"))),
        None => Ok(members),
    }
}

/// The members of an object whose members are strings.
///
/// # Errors
/// [`Fault::InvalidParams`] if it is anything else.
pub(super) fn strings(path: &str, json: &str) -> Result<BTreeMap<String, String>, Fault> {
    members(path, json)?;
    serde_json::from_str(json)
        .map_err(|_| Fault::invalid_params(format!("{path} must be an object whose members are strings")))
}
