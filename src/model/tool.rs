//! The tools that an agent offers to clients that know only tools: by which sets they are enabled, and their names.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};

use super::method::CostClass;

/// A set of tools of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String")]
#[schema(rename_all = "snake_case")]
pub enum ToolSet {
    /// `search` and `fetch`.
    Search,
    /// `list_resources` and `read_resource`.
    Resources,
    /// `list_prompts` and `get_prompt`.
    Prompts,
    /// A tool for each prompt.
    PromptTools,
}

impl ToolSet {
    /// Every set, in the order in which their tools are listed.
    pub const ALL: [Self; 4] = [Self::Search, Self::Resources, Self::Prompts, Self::PromptTools];

    /// The value that is stored and sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Resources => "resources",
            Self::Prompts => "prompts",
            Self::PromptTools => "prompt_tools",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.as_str() == text)
    }
}

impl TryFrom<String> for ToolSet {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let unknown =
            || format!("unknown tools `{text}`, expected search, resources, prompts or prompt_tools");
        Self::parse(&text).ok_or_else(unknown)
    }
}

/// The sets of tools that an agent offers: none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolSets(u8);

impl ToolSets {
    /// Whether a set is one of them.
    pub fn contains(self, set: ToolSet) -> bool {
        self.0 & (1 << set as u8) != 0
    }

    /// The sets, in the order in which their tools are listed.
    pub fn iter(self) -> impl Iterator<Item = ToolSet> {
        ToolSet::ALL.into_iter().filter(move |set| self.contains(*set))
    }

    /// The values that are stored.
    pub fn to_texts(self) -> Vec<String> {
        self.iter().map(|set| set.as_str().to_owned()).collect()
    }

    /// Parses the stored values, without those that a newer version stored.
    pub fn from_texts(texts: &[String]) -> Self {
        texts.iter().filter_map(|text| ToolSet::parse(text)).collect()
    }
}

/// Each counts once.
impl FromIterator<ToolSet> for ToolSets {
    fn from_iter<I: IntoIterator<Item = ToolSet>>(sets: I) -> Self {
        Self(sets.into_iter().fold(0, |bits, set| bits | 1 << set as u8))
    }
}

impl Serialize for ToolSets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(ToolSet::as_str))
    }
}

impl<'de> Deserialize<'de> for ToolSets {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<ToolSet>::deserialize(deserializer).map(|sets| sets.into_iter().collect())
    }
}

/// A tool with a name of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixedTool {
    /// `search`.
    Search,
    /// `fetch`: as `resources/read`, and for prompts as `prompts/get`.
    Fetch,
    /// `list_resources`: as `resources/list`, then `resources/templates/list`.
    ListResources,
    /// `read_resource`: as `resources/read`.
    ReadResource,
    /// `list_prompts`: as `prompts/list`.
    ListPrompts,
    /// `get_prompt`: as `prompts/get`.
    GetPrompt,
}

/// Maximum length of a tool's name in bytes.
const MAX_NAME_BYTES: usize = 64;

impl FixedTool {
    /// Every one, in the order in which they are listed.
    pub const ALL: [Self; 6] = [
        Self::Search,
        Self::Fetch,
        Self::ListResources,
        Self::ReadResource,
        Self::ListPrompts,
        Self::GetPrompt,
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Fetch => "fetch",
            Self::ListResources => "list_resources",
            Self::ReadResource => "read_resource",
            Self::ListPrompts => "list_prompts",
            Self::GetPrompt => "get_prompt",
        }
    }

    /// The tool of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The set that it belongs to.
    pub fn set(self) -> ToolSet {
        match self {
            Self::Search | Self::Fetch => ToolSet::Search,
            Self::ListResources | Self::ReadResource => ToolSet::Resources,
            Self::ListPrompts | Self::GetPrompt => ToolSet::Prompts,
        }
    }
}

/// Whether the prompt of this name can be a tool: `[A-Za-z0-9_-]{1,64}`, and not the name of another tool.
pub fn can_be_tool(prompt: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&prompt.len())
        && prompt.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        && FixedTool::parse(prompt).is_none()
}

/// What precedes the name of a prompt in the id by which `search` returns it and `fetch` takes it.
pub const PROMPT_ID: &str = "prompt:";
/// What precedes a URI in its id that would be read as another id: one of the scheme `prompt`, so that what an id stands for,
/// and costs, depends on the id alone.
const URI_ID: &str = "uri:";

/// What an id stands for that `search` returns and `fetch` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundId<'a> {
    /// The prompt of a name.
    Prompt(&'a str),
    /// A URI, or the text of a template.
    Uri(&'a str),
}

impl<'a> FoundId<'a> {
    /// Reads an id.
    pub fn parse(id: &'a str) -> Self {
        match (id.strip_prefix(PROMPT_ID), id.strip_prefix(URI_ID)) {
            (Some(name), _) => Self::Prompt(name),
            (None, Some(uri)) if is_escaped(uri) => Self::Uri(uri),
            (None, _) => Self::Uri(id),
        }
    }

    /// The name or the URI.
    pub fn text(self) -> &'a str {
        match self {
            Self::Prompt(text) | Self::Uri(text) => text,
        }
    }
}

/// The id of a URI or of the text of a template, which [`FoundId::parse`] reads.
pub fn id_of_uri(uri: &str) -> Cow<'_, str> {
    if is_escaped(uri) { Cow::Owned(format!("{URI_ID}{uri}")) } else { Cow::Borrowed(uri) }
}

fn is_escaped(uri: &str) -> bool {
    uri.trim_start_matches(URI_ID).starts_with(PROMPT_ID)
}

/// The cost of a call of the tool of this name: that of the method that it stands for, which for `fetch` depends on its
/// argument `id`. It does not depend on what an agent offers, since it is charged before that is known.
pub fn cost_of<T: AsRef<str>>(name: &str, id: impl FnOnce() -> Option<T>) -> CostClass {
    let names_prompt = || id().is_some_and(|id| matches!(FoundId::parse(id.as_ref()), FoundId::Prompt(_)));
    match FixedTool::parse(name) {
        Some(FixedTool::ListResources | FixedTool::ListPrompts) => CostClass::List,
        Some(FixedTool::Search) => CostClass::Search,
        Some(FixedTool::GetPrompt) => CostClass::Prompt,
        Some(FixedTool::Fetch) if names_prompt() => CostClass::Prompt,
        Some(FixedTool::Fetch | FixedTool::ReadResource) => CostClass::Read,
        None if can_be_tool(name) => CostClass::Prompt,
        None => CostClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::{FixedTool, FoundId, ToolSet, ToolSets, can_be_tool, cost_of, id_of_uri};
    use crate::model::method::CostClass;

    fn read(json: &str) -> Result<String, String> {
        let sets: ToolSets = serde_json::from_str(json).map_err(|error| error.to_string())?;
        Ok(serde_json::to_string(&sets).unwrap())
    }

    #[test]
    fn sets_are_sent_once_each_and_in_their_order() {
        assert_eq!(
            read(r#"["prompt_tools","resources","search","resources"]"#).unwrap(),
            r#"["search","resources","prompt_tools"]"#
        );
        assert_eq!(read("[]").unwrap(), "[]");
        let error = read(r#"["tasks"]"#).unwrap_err();
        assert!(
            error.starts_with("unknown tools `tasks`, expected search, resources, prompts or prompt_tools"),
            "{error}"
        );
    }

    #[test]
    fn sets_of_a_newer_version_are_left_out() {
        let stored = ["tasks", "prompts"].map(str::to_owned);
        assert_eq!(ToolSets::from_texts(&stored), [ToolSet::Prompts].into_iter().collect());
        assert_eq!(ToolSets::from_texts(&stored).to_texts(), ["prompts"]);
    }

    #[test]
    fn each_fixed_tool_parses_to_itself_and_is_no_prompt() {
        for tool in FixedTool::ALL {
            assert_eq!(FixedTool::parse(tool.name()), Some(tool));
            assert!(!can_be_tool(tool.name()));
        }
    }

    #[test]
    fn tools_cost_what_their_methods_cost() {
        for (name, cost) in [
            ("search", CostClass::Search),
            ("fetch", CostClass::Read),
            ("list_resources", CostClass::List),
            ("list_prompts", CostClass::List),
            ("read_resource", CostClass::Read),
            ("get_prompt", CostClass::Prompt),
            ("greet", CostClass::Prompt),
            ("no.tool", CostClass::Other),
        ] {
            assert_eq!(cost_of(name, || None::<&str>), cost, "{name}");
        }
        for (id, cost) in [
            ("prompt:p", CostClass::Prompt),
            ("prompts:p", CostClass::Read),
            ("uri:prompt:p", CostClass::Read),
            ("", CostClass::Read),
        ] {
            assert_eq!(cost_of("fetch", || Some(id)), cost, "{id}");
        }
        assert_eq!(cost_of("read_resource", || Some("prompt:p")), CostClass::Read);
    }

    #[test]
    fn ids_of_uris_and_prompts_are_different() {
        for (uri, id) in [
            ("x:y", "x:y"),
            ("uri:x", "uri:x"),
            ("prompt:p", "uri:prompt:p"),
            ("prompt:{p}", "uri:prompt:{p}"),
            ("uri:prompt:p", "uri:uri:prompt:p"),
            ("PROMPT:p", "PROMPT:p"),
        ] {
            assert_eq!(id_of_uri(uri), id);
            assert_eq!(FoundId::parse(id), FoundId::Uri(uri));
        }
        assert_eq!(FoundId::parse("prompt:uri:p"), FoundId::Prompt("uri:p"));
    }

    #[test]
    fn only_plain_names_are_tools() {
        let (longest, longer) = ("a".repeat(64), "a".repeat(65));
        for name in ["a", "A_b-9", &longest, "Search"] {
            assert!(can_be_tool(name), "{name}");
        }
        for name in ["", "a b", "a.b", "ä", "a/b", &longer, "search", "fetch"] {
            assert!(!can_be_tool(name), "{name}");
        }
    }
}
