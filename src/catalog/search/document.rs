//! What is indexed of definitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use search::{Field, Index};
use serde::{Deserialize, Serialize};

use crate::model::content::ContentHash;
use crate::model::ids::ResourceUri;
use crate::model::kinds::Member;
use crate::model::label::Labels;
use crate::model::mount::{Mount, TreeId};
use crate::model::prompt::{Prompt, PromptName};
use crate::model::resource::{Part, PartKind, Resource};
use crate::model::skill::{Skill, SkillRoot};
use crate::model::template::ResourceTemplate;
use crate::model::tool::PROMPT_ID;

/// The kinds of definitions that are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchedKind {
    /// Resources.
    Resource,
    /// Resource templates, by their definition.
    Template,
    /// Prompts, by their definition.
    Prompt,
    /// Skills, by their frontmatter and the texts of their files.
    Skill,
}

/// A definition in an index.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum SearchedSubject {
    /// The resource of a URI.
    Resource(ResourceUri),
    /// The file of a mount, by what stands after the mount's URI in its own.
    File(TreeId, Arc<str>),
    /// The template of this text.
    Template(Arc<str>),
    /// The prompt of a name.
    Prompt(PromptName),
    /// The skill of a folder.
    Skill(SkillRoot),
}

/// What decides whether a definition is found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) kind: SearchedKind,
    pub(super) labels: Labels,
}

/// The definitions of an agent, by the words that they contain.
pub(super) type SearchIndex = Index<SearchedSubject, Group>;

/// The texts of a definition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Texts<'a> {
    pub(super) name: &'a str,
    pub(super) title: Option<&'a str>,
    pub(super) description: Option<&'a str>,
    /// The URI, or the URI template.
    pub(super) uri: Option<&'a str>,
}

impl<'a> Texts<'a> {
    /// The title for people.
    pub(super) fn shown_title(&self) -> &'a str {
        self.title.unwrap_or(self.name)
    }
}

/// A kind of definition that is found.
pub(super) trait Searched: Member {
    /// The kind.
    const SEARCHED: SearchedKind;

    /// Names a definition in an index.
    fn subject(key: &Self::Key) -> SearchedSubject;

    /// What clients read it by: a URI, the text of a template, or `prompt:` and the name of a prompt.
    fn id(&self) -> String;

    /// The texts of the definition itself.
    fn texts(&self) -> Texts<'_>;

    /// The text of its content: the hashes of its parts, and how many bytes of each are indexed, `most` together.
    fn contents_within(&self, most: usize) -> Vec<(ContentHash, usize)> {
        let _ = most;
        Vec::new()
    }
}

impl Searched for Resource {
    const SEARCHED: SearchedKind = SearchedKind::Resource;

    fn subject(key: &ResourceUri) -> SearchedSubject {
        SearchedSubject::Resource(key.clone())
    }

    fn id(&self) -> String {
        self.uri.to_string()
    }

    fn texts(&self) -> Texts<'_> {
        let definition = &self.definition;
        Texts {
            name: &definition.name,
            title: definition.title.as_deref(),
            description: definition.description.as_deref(),
            uri: Some(self.uri.as_str()),
        }
    }

    fn contents_within(&self, most: usize) -> Vec<(ContentHash, usize)> {
        texts_within(self.parts.iter(), most)
    }
}

/// The hashes of the texts among parts, and how many bytes of each make up the first `most` bytes.
fn texts_within<'p>(parts: impl Iterator<Item = &'p Part>, most: usize) -> Vec<(ContentHash, usize)> {
    let mut left = most;
    let texts = parts.filter(|part| part.kind == PartKind::Text && part.size > 0);
    let within = texts.map_while(|part| {
        let bytes = usize::try_from(part.size).unwrap_or(usize::MAX).min(left);
        left -= bytes;
        (bytes > 0).then_some((part.hash, bytes))
    });
    within.collect()
}

impl Searched for ResourceTemplate {
    const SEARCHED: SearchedKind = SearchedKind::Template;

    fn subject(key: &Self::Key) -> SearchedSubject {
        SearchedSubject::Template(key.as_str().into())
    }

    fn id(&self) -> String {
        self.uri_template.as_str().to_owned()
    }

    fn texts(&self) -> Texts<'_> {
        let definition = &self.definition;
        Texts {
            name: &definition.name,
            title: definition.title.as_deref(),
            description: definition.description.as_deref(),
            uri: Some(self.uri_template.as_str()),
        }
    }
}

impl Searched for Prompt {
    const SEARCHED: SearchedKind = SearchedKind::Prompt;

    fn subject(key: &PromptName) -> SearchedSubject {
        SearchedSubject::Prompt(key.clone())
    }

    fn id(&self) -> String {
        format!("{PROMPT_ID}{}", self.name)
    }

    fn texts(&self) -> Texts<'_> {
        let definition = &self.definition;
        Texts {
            name: self.name.as_str(),
            title: definition.title.as_deref(),
            description: definition.description.as_deref(),
            uri: None,
        }
    }
}

impl Searched for Skill {
    const SEARCHED: SearchedKind = SearchedKind::Skill;

    fn subject(key: &SkillRoot) -> SearchedSubject {
        SearchedSubject::Skill(key.clone())
    }

    fn id(&self) -> String {
        self.skill_md.uri.to_string()
    }

    fn texts(&self) -> Texts<'_> {
        self.skill_md.texts()
    }

    /// `SKILL.md` first.
    fn contents_within(&self, most: usize) -> Vec<(ContentHash, usize)> {
        let others = self.files.iter().filter(|file| file.resource.uri != self.skill_md.uri);
        texts_within(self.skill_md.parts.iter().chain(others.map(|file| &file.part)), most)
    }
}

/// A definition of any kind, to be indexed.
pub(super) trait Document: Send + Sync {
    /// As [`Searched::contents_within`].
    fn contents_within(&self, most: usize) -> Vec<(ContentHash, usize)>;

    /// Adds it to an index, with the texts of its contents that are among `loaded`.
    fn insert(&self, index: &mut SearchIndex, loaded: &BTreeMap<ContentHash, Bytes>, most: usize);
}

impl<K: Searched> Document for K {
    fn contents_within(&self, most: usize) -> Vec<(ContentHash, usize)> {
        Searched::contents_within(self, most)
    }

    fn insert(&self, index: &mut SearchIndex, loaded: &BTreeMap<ContentHash, Bytes>, most: usize) {
        let Texts { name, title, description, uri } = self.texts();
        // A URI is searched for as it is read.
        let uri = uri.map(|uri| percent_decode_str(uri).decode_utf8_lossy());
        let contents = Searched::contents_within(self, most);
        let contents = contents.iter().filter_map(|(hash, bytes)| Some((loaded.get(hash)?, *bytes)));
        let fields = [
            (Field::Name, Some(name)),
            (Field::Title, title),
            (Field::Description, description),
            (Field::Uri, uri.as_deref()),
        ];
        let fields = fields.into_iter().filter_map(|(field, text)| Some((field, text?)));
        let contents = contents.map(|(text, bytes)| (Field::Text, beginning(text, bytes)));
        let group = Group { kind: K::SEARCHED, labels: self.labels().clone() };
        index.insert(K::subject(self.key()), group, fields.chain(contents));
    }
}

/// Adds a file of a mount to an index, by its name and its URI: its content is elsewhere.
pub(super) fn insert_file(index: &mut SearchIndex, mount: &Mount, suffix: &Arc<str>) {
    let uri = format!("{}{suffix}", mount.uri);
    let uri = percent_decode_str(&uri).decode_utf8_lossy();
    let name = uri.rsplit('/').next().unwrap_or_default();
    let group = Group { kind: SearchedKind::Resource, labels: mount.labels.clone() };
    let subject = SearchedSubject::File(mount.tree_id, Arc::clone(suffix));
    index.insert(subject, group, [(Field::Name, name), (Field::Uri, &*uri)]);
}

/// At most `most` bytes of a text, which may itself end within a character.
pub(super) fn beginning(text: &[u8], most: usize) -> &str {
    let text = &text[..text.len().min(most)];
    text.utf8_chunks().next().map_or("", |valid| valid.valid())
}
