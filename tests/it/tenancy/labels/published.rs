//! What the mixed agent and its twins publish: random definitions of every kind.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

pub(super) const LABELS: [&str; 3] = ["a", "b", "c"];
/// Of which those below `x:a/` and `y:` may also match templates.
pub(super) const RESOURCES: [&str; 5] = ["x:1", "x:2", "x:a/1", "x:a/2", "y:1"];
pub(super) const TEMPLATES: [&str; 4] = ["x:{v}", "x:a/{v}", "x:a/{+v}", "y:{+v}"];
pub(super) const PROMPTS: [&str; 4] = ["embeds", "embeds-rendered", "embeds-skill", "plain"];
/// The paths of skills, of which some share directories.
pub(super) const SKILLS: [&str; 5] = ["plan", "team/plan", "team/review", "team/deep/er/review", "only/plan"];
/// The files of each skill.
pub(super) const FILES: [&str; 3] = ["SKILL.md", "data.bin", "notes/first.md"];
/// Not registered; a template may answer the first two.
pub(super) const OTHERS: [&str; 5] =
    ["x:9", "x:a/9/9", "z:9", "skill://team/plan/absent", "skill://absent/plan/SKILL.md"];
/// Directories, most of which exist for some callers, and what is none.
pub(super) const DIRECTORIES: [&str; 12] = [
    "skill://plan",
    "skill://team",
    "skill://team/plan",
    "skill://team/plan/notes",
    "skill://team/deep",
    "skill://team/deep/er",
    "skill://team/deep/er/review",
    "skill://only",
    "skill://only/plan/notes",
    "skill://absent",
    "skill://plan/SKILL.md",
    "x:1",
];
/// Words of descriptions and texts, each more or less often in each of them.
pub(super) const WORDS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
/// A resource that everybody sees, and the beginning of one for each label; their text is the number of the last write.
pub(super) const MARKER: &str = "marker:last";

/// When the resources were changed, as far as clients see it.
pub(super) const MODIFIED: &str = "2026-01-01T00:00:00Z";

/// A registered definition: the number of its last write, and its labels.
type Registered = (usize, Vec<&'static str>);

/// The definitions with their labels, by list and key.
#[derive(Default)]
pub(super) struct Published {
    definitions: BTreeMap<(&'static str, &'static str), Registered>,
}

/// The URIs of all files of all skills.
pub(super) fn files() -> impl Iterator<Item = String> {
    SKILLS.iter().flat_map(|skill| FILES.iter().map(move |file| format!("skill://{skill}/{file}")))
}

/// The URI of the `SKILL.md` of a path.
pub(super) fn skill_md(path: &str) -> String {
    format!("skill://{path}/{}", FILES[0])
}

/// Words that follow from the key and the number of the write.
fn words(key: &str, version: usize) -> String {
    let mut words = Vec::new();
    for word in WORDS {
        let mut hasher = DefaultHasher::new();
        (key, version, word).hash(&mut hasher);
        words.extend(std::iter::repeat_n(word, usize::try_from(hasher.finish() % 4).unwrap()));
    }
    words.join(" ")
}

impl Published {
    /// Changes some definitions, their labels included.
    pub(super) fn change(&mut self, random: &mut StdRng, version: usize) {
        for _ in 0..random.random_range(1..5) {
            let (list, keys): (_, &[_]) = match random.random_range(0..7) {
                0 => ("prompts", &PROMPTS),
                1 => ("templates", &TEMPLATES),
                2 | 3 => ("skills", &SKILLS),
                _ => ("resources", &RESOURCES),
            };
            let key = *keys.choose(random).unwrap();
            if random.random_ratio(1, 6) {
                self.definitions.remove(&(list, key));
            } else {
                let most = random.random_range(0..3);
                let labels: Vec<_> = LABELS.sample(random, most).copied().collect();
                self.definitions.insert((list, key), (version, labels));
            }
        }
    }

    /// The manifest of the definitions with visible labels, after the write of this number.
    pub(super) fn manifest(&self, last: usize, sees: impl Fn(&[&str]) -> bool) -> Value {
        let modified = json!({"lastModified": MODIFIED});
        let marker = |uri: &str, labels: &[&str]| {
            json!({
                "uri": uri, "name": "n", "annotations": modified, "labels": labels,
                "contents": [{"text": last.to_string()}],
            })
        };
        let labelled = LABELS.into_iter().filter(|label| sees(&[label]));
        let labelled = labelled.map(|label| marker(&format!("{MARKER}-{label}"), &[label]));
        let mut resources: Vec<_> = std::iter::once(marker(MARKER, &[])).chain(labelled).collect();
        let (mut templates, mut prompts, mut skills) = (Vec::new(), Vec::new(), Vec::new());
        for ((list, key), (version, labels)) in
            self.definitions.iter().filter(|(_, (_, labels))| sees(labels))
        {
            let (name, words) = (format!("{key} of write {version}"), words(key, *version));
            match *list {
                "resources" => resources.push(json!({
                    "uri": key, "name": name, "description": words, "annotations": modified, "labels": labels,
                    "contents": [{"text": format!("{name} {words}")}],
                })),
                "templates" => templates.push(json!({
                    "uriTemplate": key, "name": name, "description": words, "labels": labels,
                    "template": format!("{name}: {{{{ v }}}}"), "completions": {"v": [name]},
                })),
                "skills" => {
                    let last = key.rsplit('/').next().unwrap();
                    let text = format!("---\nname: {last}\ndescription: {name} {words}\n---\n{words}\n");
                    let note = format!("A note of {name} {words}");
                    let files = json!([
                        {"path": "SKILL.md", "text": text}, {"path": "data.bin", "blob": "AAH/"},
                        {"path": "notes/first.md", "text": note},
                    ]);
                    skills.push(json!({"path": key, "files": files, "labels": labels}));
                }
                _ => {
                    let embedded = |uri: &str| json!({"type": "resource", "resource": {"uri": uri}});
                    let content = match *key {
                        "embeds" => embedded("x:1"),
                        "embeds-rendered" => embedded("x:a/2"),
                        "embeds-skill" => embedded("skill://team/review/notes/first.md"),
                        _ => json!({"type": "text", "text": "{{ v }}"}),
                    };
                    prompts.push(json!({
                        "name": key, "title": name, "description": words, "labels": labels,
                        "arguments": [{"name": "v", "completions": [name]}],
                        "messages": [{"role": "user", "content": content}],
                    }));
                }
            }
        }
        json!({
            "apiVersion": "waggle/v1", "resources": resources, "templates": templates, "prompts": prompts,
            "skills": skills,
        })
    }
}
