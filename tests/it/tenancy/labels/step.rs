//! A random request, or a few that belong together.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use super::published::{
    DIRECTORIES, FILES, OTHERS, PROMPTS, RESOURCES, SKILLS, TEMPLATES, WORDS, files, skill_md,
};

/// What has pages.
#[derive(Clone, Copy)]
pub(super) enum List {
    Method(&'static str),
    Tool(&'static str),
    Directory(&'static str),
}

impl List {
    /// The request for a page.
    pub(super) fn page(self, cursor: Option<String>) -> (&'static str, Value) {
        let mut params = cursor.map_or(json!({}), |cursor| json!({"cursor": cursor}));
        match self {
            Self::Method(method) => (method, params),
            Self::Tool(tool) => ("tools/call", json!({"name": tool, "arguments": params})),
            Self::Directory(uri) => {
                params["uri"] = json!(uri);
                ("resources/directory/read", params)
            }
        }
    }
}

pub(super) enum Step {
    /// All pages of a list.
    Pages(List),
    /// A subscription and its end.
    Subscription(String),
    /// The acknowledgement of a stream.
    Stream,
    Request(&'static str, Value),
}

/// The URI of a resource, of a file of a skill, or of neither.
fn uri(random: &mut StdRng) -> String {
    let uris = RESOURCES.iter().chain(&OTHERS).map(|uri| (*uri).to_owned());
    uris.chain(files()).collect::<Vec<_>>().choose(random).unwrap().clone()
}

/// One or two words that occur more or less often, in some or in no definition.
fn query(random: &mut StdRng, writes: usize) -> String {
    let number = random.random_range(0..=writes).to_string();
    let others = ["write", "al", "amm", "review", "plan", "er", "note", "embeds", "x", "absent", &number];
    let words = [&WORDS[..], &WORDS, &others].concat();
    let most = random.random_range(1..3);
    words.sample(random, most).copied().collect::<Vec<_>>().join(" ")
}

impl Step {
    /// A step after this number of writes.
    pub(super) fn random(random: &mut StdRng, writes: usize) -> Self {
        let prompt = *[&PROMPTS[..], &["absent"]].concat().choose(random).unwrap();
        let template = *[&TEMPLATES[..], &["absent:{v}"]].concat().choose(random).unwrap();
        let skill = skill_md([&SKILLS[..], &["absent/plan"]].concat().choose(random).unwrap());
        let complete = |reference: Value| {
            let params = json!({"ref": reference, "argument": {"name": "v", "value": ""}});
            Self::Request("completion/complete", params)
        };
        let arguments = json!({"v": "one"});
        let tool = |name: &str, arguments: Value| {
            Self::Request("tools/call", json!({"name": name, "arguments": arguments}))
        };
        match random.random_range(0..28) {
            0 | 1 => Self::Pages(List::Method("resources/list")),
            2 => Self::Pages(List::Method("resources/templates/list")),
            3 => Self::Pages(List::Method("prompts/list")),
            4 => Self::Pages(List::Method("tools/list")),
            5 => Self::Pages(List::Method("skills/list")),
            6 => Self::Pages(List::Tool("list_resources")),
            7 => Self::Pages(List::Tool("list_prompts")),
            8 | 9 => Self::Pages(List::Directory(DIRECTORIES.choose(random).unwrap())),
            10 => Self::Subscription(uri(random)),
            11 => Self::Stream,
            12 => complete(json!({"type": "ref/prompt", "name": prompt})),
            13 => complete(json!({"type": "ref/resource", "uri": template})),
            14 => Self::Request("prompts/get", json!({"name": prompt, "arguments": arguments})),
            15 => Self::Request("skills/get", json!({"uri": skill})),
            16 => tool("get_prompt", json!({"name": prompt, "arguments": arguments})),
            17 => tool(prompt, arguments),
            18 | 19 => tool("read_resource", json!({"uri": uri(random)})),
            20 => tool("fetch", json!({"id": uri(random)})),
            21 => tool("fetch", json!({"id": format!("prompt:{prompt}")})),
            22 => tool("fetch", json!({"id": template})),
            23..=25 => tool("search", json!({"query": query(random, writes)})),
            _ => Self::Request("resources/read", json!({"uri": uri(random)})),
        }
    }
}

/// All URIs that a stream asks for.
pub(super) fn uris() -> Vec<String> {
    let files = files().filter(|uri| uri.ends_with(FILES[0]));
    RESOURCES.iter().chain(&OTHERS).map(|uri| (*uri).to_owned()).chain(files).collect()
}
