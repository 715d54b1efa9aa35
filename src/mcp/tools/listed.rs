//! Tools as encoded in lists, in the members of a revision.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::Tool;
use crate::mcp::argument_schema::ArgumentProperties;
use crate::mcp::version::ToolMembers;
use crate::model::fault::Fault;
use crate::model::prompt::{Argument, Prompt};
use crate::model::tool::FixedTool;

/// A tool in the members of a revision.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::mcp) struct ListedTool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    input_schema: InputSchema<'a>,
    /// `outputSchema`, of a tool whose result has `structuredContent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icons: Option<&'a RawValue>,
}

/// Every tool reads what the agent publishes, and nothing else.
const ANNOTATIONS: &str =
    r#"{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}"#;

/// The schema of a tool's arguments.
#[derive(Debug)]
enum InputSchema<'a> {
    Fixed(&'a RawValue),
    /// The arguments of a prompt, as strings.
    Prompt(&'a [Argument]),
}

impl Serialize for InputSchema<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let arguments = match self {
            Self::Fixed(schema) => return schema.serialize(serializer),
            Self::Prompt(arguments) => arguments,
        };
        let required: Vec<_> = arguments
            .iter()
            .filter(|argument| argument.required == Some(true))
            .map(|argument| &argument.name)
            .collect();
        let mut schema = serializer.serialize_map(None)?;
        schema.serialize_entry("type", "object")?;
        schema.serialize_entry("properties", &ArgumentProperties(arguments.iter().collect()))?;
        if !required.is_empty() {
            schema.serialize_entry("required", &required)?;
        }
        schema.serialize_entry("additionalProperties", &false)?;
        schema.end()
    }
}

impl<'a> ListedTool<'a> {
    /// A tool in these members.
    pub(super) fn of(tool: &'a Tool, members: ToolMembers) -> Result<Self, Fault> {
        match tool {
            Tool::Fixed(fixed) => Self::of_fixed(*fixed, members),
            Tool::Prompt(prompt) => Self::of_prompt(prompt, members),
        }
    }

    fn of_fixed(tool: FixedTool, members: ToolMembers) -> Result<Self, Fault> {
        let Texts { title, description, input, output } = texts(tool);
        let output = output.filter(|_| members.have_structured_content());
        Ok(Self {
            name: tool.name(),
            title: Some(title).filter(|_| members.have_structured_content()),
            description: Some(description),
            input_schema: InputSchema::Fixed(raw(input)?),
            output_schema: output.map(raw).transpose()?,
            annotations: annotations(members)?,
            icons: None,
        })
    }

    fn of_prompt(prompt: &'a Prompt, members: ToolMembers) -> Result<Self, Fault> {
        let definition = &prompt.definition;
        Ok(Self {
            name: prompt.name.as_str(),
            title: definition.title.as_deref().filter(|_| members.have_structured_content()),
            description: definition.description.as_deref(),
            input_schema: InputSchema::Prompt(&prompt.arguments),
            output_schema: None,
            annotations: annotations(members)?,
            icons: definition.icons.as_deref().filter(|_| members.have_icons()),
        })
    }
}

fn annotations(members: ToolMembers) -> Result<Option<&'static RawValue>, Fault> {
    members.have_annotations().then(|| raw(ANNOTATIONS)).transpose()
}

fn raw(schema: &'static str) -> Result<&'static RawValue, Fault> {
    serde_json::from_str(schema).map_err(|error| Fault::Internal(format!("cannot encode a schema: {error}")))
}

/// What is listed of a fixed tool.
struct Texts {
    title: &'static str,
    /// For models: what the tool is for, when to use it, and an example of its arguments.
    description: &'static str,
    input: &'static str,
    output: Option<&'static str>,
}

const CURSOR: &str = concat!(
    r#"{"type":"object","properties":{"cursor":{"type":"string","#,
    r#""description":"nextCursor of the previous result; without it, the first page."}},"additionalProperties":false}"#
);

fn texts(tool: FixedTool) -> Texts {
    match tool {
        FixedTool::Search => Texts {
            title: "Search",
            description: "Finds documents, data and prompts of this server by words in their names, descriptions and texts, \
                in any language. Use it first when you look for something: give a few words that must all occur, without \
                operators; if nothing is found, try fewer or other words. Each result has an id; fetch returns the whole \
                text. Example of arguments: {\"query\": \"refund invoice\"}.",
            input: concat!(
                r#"{"type":"object","properties":{"query":{"type":"string","minLength":1,"maxLength":256,"#,
                r#""description":"Words that must all occur; the last one may be the beginning of a word."}},"#,
                r#""required":["query"],"additionalProperties":false}"#
            ),
            output: Some(concat!(
                r#"{"type":"object","properties":{"results":{"type":"array","items":{"type":"object","#,
                r#""properties":{"id":{"type":"string"},"title":{"type":"string"},"url":{"type":"string"},"#,
                r#""text":{"type":"string"}},"required":["id","title","url","text"]}}},"required":["results"]}"#
            )),
        },
        FixedTool::Fetch => Texts {
            title: "Fetch",
            description: "Returns the whole text of one result of search. Use it when the excerpt of a result is not \
                enough to answer. Example of arguments: {\"id\": \"docs://guide/start\"}, with an id that search \
                returned.",
            input: concat!(
                r#"{"type":"object","properties":{"id":{"type":"string","#,
                r#""description":"The id of a result of search."}},"required":["id"],"additionalProperties":false}"#
            ),
            output: Some(concat!(
                r#"{"type":"object","properties":{"id":{"type":"string"},"title":{"type":"string"},"#,
                r#""text":{"type":"string"},"url":{"type":"string"},"metadata":{"type":"object"}},"#,
                r#""required":["id","title","text","url","metadata"]}"#
            )),
        },
        FixedTool::ListResources => Texts {
            title: "List resources",
            description: "Lists the documents and data that this server can give you. Use it first, to find out what \
                there is and under which URI. `resources` can be read as they are; in a `uriTemplate` of \
                `resourceTemplates`, replace each {variable} by a value to get a URI. Read a URI with read_resource. \
                If the result has a nextCursor, there is more. Example of arguments: {} for the first page, \
                {\"cursor\": \"AbC\"} for the page after nextCursor AbC.",
            input: CURSOR,
            output: Some(concat!(
                r#"{"type":"object","properties":{"resources":{"type":"array","items":{"type":"object","#,
                r#""properties":{"uri":{"type":"string"},"name":{"type":"string"}},"required":["uri","name"]}},"#,
                r#""resourceTemplates":{"type":"array","items":{"type":"object","#,
                r#""properties":{"uriTemplate":{"type":"string"},"name":{"type":"string"}},"#,
                r#""required":["uriTemplate","name"]}},"nextCursor":{"type":"string"}},"#,
                r#""required":["resources","resourceTemplates"]}"#
            )),
        },
        FixedTool::ReadResource => Texts {
            title: "Read resource",
            description: "Reads one document or piece of data by its URI. Use it when you need the content of something \
                that list_resources lists, or of a URI made from one of its templates. A long text comes in parts: \
                where it goes on, the result ends with the next offset. Example of arguments: \
                {\"uri\": \"docs://guide/start\"}, and {\"uri\": \"docs://guide/start\", \"offset\": 262144} for a \
                later part.",
            input: concat!(
                r#"{"type":"object","properties":{"uri":{"type":"string","#,
                r#""description":"The URI, as listed or made from a template."},"#,
                r#""offset":{"type":"integer","minimum":0,"#,
                r#""description":"Where to begin in the text, in bytes: 0, or as the previous result said."}},"#,
                r#""required":["uri"],"additionalProperties":false}"#
            ),
            output: None,
        },
        FixedTool::ListPrompts => Texts {
            title: "List prompts",
            description: "Lists the prompts of this server: instructions for tasks that it was prepared for, each with \
                its arguments. Use it when you are about to begin a task, to see whether there is a prompt for it; then \
                get it with get_prompt and follow it. If the result has a nextCursor, there is more. Example of \
                arguments: {} for the first page, {\"cursor\": \"AbC\"} for the page after nextCursor AbC.",
            input: CURSOR,
            output: Some(concat!(
                r#"{"type":"object","properties":{"prompts":{"type":"array","items":{"type":"object","#,
                r#""properties":{"name":{"type":"string"}},"required":["name"]}},"nextCursor":{"type":"string"}},"#,
                r#""required":["prompts"]}"#
            )),
        },
        FixedTool::GetPrompt => Texts {
            title: "Get prompt",
            description: "Returns the text of one prompt with your values filled in. Use it for a task for which \
                list_prompts lists a prompt, then follow what it says. Each argument that is listed as required must be \
                given; all values are strings. Example of arguments: \
                {\"name\": \"review\", \"arguments\": {\"language\": \"Rust\"}}.",
            input: concat!(
                r#"{"type":"object","properties":{"name":{"type":"string","description":"The name, as listed."},"#,
                r#""arguments":{"type":"object","description":"The values of the prompt's arguments, by name.","#,
                r#""additionalProperties":{"type":"string"}}},"required":["name"],"additionalProperties":false}"#
            ),
            output: None,
        },
    }
}
