//! Tools: views of resources and prompts for clients that know only tools. A tool is answered by the use case of the
//! method that it stands for, with its access, cost, cache and audit subject.

mod arguments;
pub(super) mod blocks;
mod call;
mod fetch;
pub(super) mod fetched;
mod list;
mod listed;
mod object;
mod search;

use std::borrow::Cow;
use std::sync::Arc;

pub(super) use self::blocks::Block;
pub(super) use self::listed::ListedTool;
use super::refusal::Refusal;
use super::wire::Params;
use super::wire::members::{Members, text_of};
use crate::catalog::snapshot::view::View;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::method::CostClass;
use crate::model::prompt::Prompt;
use crate::model::tool::{self, FixedTool, FoundId, ToolSet, can_be_tool};

/// A tool that an agent offers to a caller.
#[derive(Debug, Clone)]
enum Tool {
    /// A tool with a name of its own.
    Fixed(FixedTool),
    /// The tool of a prompt.
    Prompt(Arc<Prompt>),
}

impl Tool {
    /// The tool of a name, if the agent offers it and the caller sees it.
    fn find(view: &View, name: &str) -> Option<Self> {
        let sets = view.snapshot().description.tools;
        match FixedTool::parse(name) {
            Some(fixed) => sets.contains(fixed.set()).then_some(Self::Fixed(fixed)),
            None if sets.contains(ToolSet::PromptTools) && can_be_tool(name) => {
                view.get::<Prompt>(name).cloned().map(Self::Prompt)
            }
            None => None,
        }
    }

    /// The refusal of a tool that is not found.
    fn refused(view: &View, name: &str) -> Refusal {
        let sets = view.snapshot().description.tools;
        let fault = Fault::unknown("tool", name);
        if sets.contains(ToolSet::PromptTools) && can_be_tool(name) {
            return Refusal::of_prompt(view, name, fault);
        }
        fault.into()
    }
}

/// The cost of a `tools/call`.
pub(super) fn cost_of(params: &Params<'_>) -> CostClass {
    let name = params.string("name").ok().flatten();
    name.map_or(CostClass::Other, |name| tool::cost_of(&name, || argument_of(params, "id")))
}

/// An argument of a `tools/call`.
fn argument_of<'a>(params: &Params<'a>, argument: &str) -> Option<Cow<'a, str>> {
    let arguments = params.object("arguments").ok().flatten()?;
    text_of(Members::read(arguments.get()).ok()?.get(argument)?)
}

/// The argument of a tool that names what it reads.
fn subject_argument(tool: FixedTool) -> Option<&'static str> {
    match tool {
        FixedTool::ReadResource => Some("uri"),
        FixedTool::Fetch => Some("id"),
        FixedTool::GetPrompt => Some("name"),
        FixedTool::Search | FixedTool::ListResources | FixedTool::ListPrompts => None,
    }
}

/// The URI that a `tools/call` reads, if its arguments name one. The definitions that may answer it suffice for the call.
pub(super) fn resource_of(name: &str, arguments: &str) -> Option<ResourceUri> {
    let tool = FixedTool::parse(name)?;
    let arguments = Members::read(arguments).ok()?;
    let named = text_of(arguments.get(subject_argument(tool)?)?)?;
    let uri = match (tool, FoundId::parse(&named)) {
        (FixedTool::ReadResource, _) => &named,
        (FixedTool::Fetch, FoundId::Uri(uri)) => uri,
        _ => return None,
    };
    ResourceUri::parse(uri).ok()
}

/// The subject of a `tools/call` in the audit log: the URI or the prompt that it reads, otherwise the tool.
pub(super) fn subject_of<'a>(params: &Params<'a>) -> Option<Cow<'a, str>> {
    let name = params.string("name").ok().flatten()?;
    let Some(argument) = FixedTool::parse(&name).and_then(subject_argument) else { return Some(name) };
    Some(match argument_of(params, argument) {
        Some(id) if argument == "id" => named_by(id),
        Some(subject) => subject,
        None => name,
    })
}

/// What an id that `search` returned stands for: a URI, or the name of a prompt.
fn named_by(id: Cow<'_, str>) -> Cow<'_, str> {
    match id {
        Cow::Borrowed(id) => Cow::Borrowed(FoundId::parse(id).text()),
        Cow::Owned(id) => Cow::Owned(FoundId::parse(&id).text().to_owned()),
    }
}

/// Whether a fault of a tool is shown to the model, as a result with `isError`, instead of failing the request. While an
/// index is built, the model may search again.
fn is_shown(tool: &Tool, fault: &Fault) -> bool {
    let is_building = matches!((tool, fault), (Tool::Fixed(FixedTool::Search), Fault::Unavailable { .. }));
    is_building
        || matches!(
            fault,
            Fault::InvalidParams(_)
                | Fault::MissingArguments(_)
                | Fault::ResourceNotFound(_)
                | Fault::SourceTimeout
                | Fault::SourceFailed(_)
                | Fault::ResultTooLarge { .. }
        )
}

#[cfg(test)]
mod tests {
    use super::{cost_of, subject_of};
    use crate::mcp::wire::{Message, MessageBody, parse};
    use crate::model::method::CostClass;

    /// The subject of a call with these parameters, and its cost.
    fn read(params: &str) -> (Option<String>, CostClass) {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let Ok(MessageBody::Message(Message::Request(request))) = parse(body.as_bytes()) else {
            panic!("{params}")
        };
        (subject_of(&request.params).map(Into::into), cost_of(&request.params))
    }

    #[test]
    fn call_has_the_subject_and_the_cost_of_what_it_reads() {
        for (params, subject, cost) in [
            (r#"{"name":"fetch","arguments":{"id":"x:y"}}"#, Some("x:y"), CostClass::Read),
            (r#"{"name":"fetch","arguments":{"id":"prompt:greet"}}"#, Some("greet"), CostClass::Prompt),
            (r#"{"name":"fetch","arguments":{"id":"prompt:gr\u0065et"}}"#, Some("greet"), CostClass::Prompt),
            (r#"{"name":"fetch","arguments":{"id":"\u0070rompt:greet"}}"#, Some("greet"), CostClass::Prompt),
            (r#"{"name":"fetch","arguments":{"id":"x:\u0079"}}"#, Some("x:y"), CostClass::Read),
            (
                r#"{"name":"fetch","arguments":{"id":"uri:prompt:greet"}}"#,
                Some("prompt:greet"),
                CostClass::Read,
            ),
            (r#"{"name":"fetch","arguments":{"id":1}}"#, Some("fetch"), CostClass::Read),
            (r#"{"name":"fetch"}"#, Some("fetch"), CostClass::Read),
            (r#"{"name":"read_resource","arguments":{"uri":"prompt:p"}}"#, Some("prompt:p"), CostClass::Read),
            (r#"{"name":"get_prompt","arguments":{"name":"greet"}}"#, Some("greet"), CostClass::Prompt),
            (r#"{"name":"search","arguments":{"query":"q"}}"#, Some("search"), CostClass::Search),
            ("{}", None, CostClass::Other),
        ] {
            assert_eq!(read(params), (subject.map(str::to_owned), cost), "{params}");
        }
    }
}
