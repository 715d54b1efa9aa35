//! Views: the definitions of a snapshot that one caller sees, which is the only place where that is decided. An answer to a
//! caller is made from a view, never from the definitions themselves, which only this module reads. What a caller does not
//! see is answered as what is not registered.

use std::sync::{Arc, OnceLock};

use super::labelled_map::LabelledMap;
use super::trees::Trees;
use super::{AgentSnapshot, Definitions};
use crate::catalog::prefix_index::TemplateSet;
use crate::catalog::template_set::Match;
use crate::model::call::{List, ListPage, Page};
use crate::model::definition::DefinitionKind;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::kinds::Member;
use crate::model::label::{CallerLabels, Labels};
use crate::model::mount::Mount;
use crate::model::place::SourcePlace;
use crate::model::resource::Resource;
use crate::model::scope::Revision;
use crate::model::template::ResourceTemplate;
use crate::model::variant::Variant;

/// The definitions of an agent that a caller sees.
#[derive(Debug, Clone)]
pub struct View {
    snapshot: Arc<AgentSnapshot>,
    /// Those of the caller; none if no definition has labels.
    labels: CallerLabels,
    /// The visible templates, once they are needed and if some may be hidden.
    templates: OnceLock<TemplateSet>,
}

/// The definition that a URI is read from.
#[derive(Debug)]
pub enum Answering {
    /// The resource of this URI, and whether its revision is that of a change of its content.
    Registered(Arc<Resource>, bool),
    /// The file of a mount, the mount, and whether the revision of the file is that of a change of its content.
    Mounted(Arc<Resource>, Arc<Mount>, bool),
    /// A template that it matches, and whether its revision is that of a change of its content.
    Rendered(Match, bool),
}

impl Answering {
    /// The title of the definition; its name if it has none.
    pub fn title(&self) -> &str {
        let definition = match self {
            Self::Registered(resource, _) | Self::Mounted(resource, ..) => &resource.definition,
            Self::Rendered(found, _) => &found.template.definition,
        };
        definition.title.as_deref().unwrap_or(&definition.name)
    }

    /// Whether the content comes from a connection.
    pub fn is_sourced(&self) -> bool {
        self.source().is_some()
    }

    /// Where the content is, if it comes from a connection.
    pub(in crate::catalog) fn source(&self) -> Option<&SourcePlace> {
        match self {
            Self::Registered(resource, _) | Self::Mounted(resource, ..) => resource.source.as_deref(),
            Self::Rendered(found, _) => found.template.source.as_deref(),
        }
    }

    /// The revision that last changed the contents of the URI, as far as that is known without a source.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Registered(resource, _) | Self::Mounted(resource, ..) => resource.revision,
            Self::Rendered(found, _) => found.revision,
        }
    }

    /// Which content of the URI it is.
    pub fn variant(&self, uri: &ResourceUri) -> Variant {
        match self {
            Self::Registered(..) => Variant::from(uri.clone()),
            Self::Mounted(_, mount, _) => Variant::by(mount.name.as_str(), uri),
            Self::Rendered(found, _) => Variant::by(found.template.uri_template.as_str(), uri),
        }
    }

    /// The labels of the definition.
    pub(in crate::catalog) fn labels(&self) -> &Labels {
        match self {
            Self::Registered(resource, _) => &resource.labels,
            Self::Mounted(_, mount, _) => &mount.labels,
            Self::Rendered(found, _) => &found.template.labels,
        }
    }
}

impl View {
    /// What a caller sees whose labels are `labels`; these are only asked for if a definition has labels.
    pub(in crate::catalog) fn new(
        snapshot: Arc<AgentSnapshot>,
        labels: impl FnOnce() -> CallerLabels,
    ) -> Self {
        let labels = if snapshot.has_labels { labels() } else { CallerLabels::NONE };
        Self { snapshot, labels, templates: OnceLock::new() }
    }

    /// All definitions, for what answers no caller.
    pub(in crate::catalog) fn unfiltered(snapshot: Arc<AgentSnapshot>) -> Self {
        Self::new(snapshot, || CallerLabels::Everything)
    }

    /// What another caller sees of the same snapshot.
    pub(in crate::catalog) fn of(&self, labels: CallerLabels) -> Self {
        Self::new(Arc::clone(&self.snapshot), || labels)
    }

    /// The snapshot that it is a view of.
    pub fn snapshot(&self) -> &AgentSnapshot {
        &self.snapshot
    }

    pub(super) fn shared(&self) -> &Arc<AgentSnapshot> {
        &self.snapshot
    }

    /// The caller's labels that occur in the agent: callers for whom they are the same see the same definitions.
    pub fn labels(&self) -> CallerLabels {
        match &self.labels {
            CallerLabels::These(own) if !own.is_empty() => {
                let all = &self.definitions().all;
                let occurs = |label: &&_| {
                    all.resources.has_label(label)
                        || all.templates.has_label(label)
                        || all.prompts.has_label(label)
                        || all.skills.has_label(label)
                        || all.mounts.has_label(label)
                };
                CallerLabels::These(own.iter().filter(occurs).cloned().collect())
            }
            same => same.clone(),
        }
    }

    fn definitions(&self) -> &Definitions {
        &self.snapshot.definitions
    }

    pub(super) fn trees(&self) -> &Trees {
        &self.definitions().trees
    }

    pub(super) fn map<K: Member>(&self) -> &LabelledMap<K> {
        K::of(&self.definitions().all)
    }

    /// Whether the caller sees a definition.
    pub(super) fn sees(&self, definition: &impl DefinitionKind) -> bool {
        self.labels.sees(definition.labels())
    }

    /// At most `size` definitions of a kind, those after a key.
    pub(super) fn page<K: Member>(&self, after: Option<&str>, size: usize) -> Page<Arc<K>> {
        self.map::<K>().page(&self.labels, after, size)
    }

    /// The definition of a key.
    pub fn get<K: Member>(&self, key: &str) -> Option<&Arc<K>> {
        self.map::<K>().get(key).filter(|definition| self.labels.sees(definition.labels()))
    }

    /// Whether there is a definition of this key that the caller does not see.
    pub fn hides<K: Member>(&self, key: &str) -> bool {
        self.map::<K>().get(key).is_some_and(|definition| !self.labels.sees(definition.labels()))
    }

    /// Whether a definition of the agent has labels.
    pub fn has_labels(&self) -> bool {
        self.snapshot.has_labels
    }

    /// Whether a URI can be read, but not by the caller.
    pub fn hides_uri(&self, uri: &ResourceUri) -> bool {
        let all = || Self::unfiltered(Arc::clone(&self.snapshot));
        self.has_labels() && self.answering(uri).is_err() && all().answering(uri).is_ok()
    }

    /// At most `size` definitions of a list, those after a key.
    pub(in crate::catalog) fn list(&self, list: List, after: Option<&str>, size: usize) -> ListPage {
        match list {
            List::Resources => ListPage::Resources(self.resources(after, size)),
            List::Templates => ListPage::Templates(self.page(after, size)),
            List::Prompts => ListPage::Prompts(self.page(after, size)),
        }
    }

    /// The definitions of a kind that were added or replaced since an older view, and the keys of those that were removed,
    /// with any labels; all without an older one.
    pub(in crate::catalog) fn changed_since<K: Member>(
        &self,
        older: Option<&Self>,
    ) -> (Vec<Arc<K>>, Vec<K::Key>) {
        self.map::<K>().changed_since(older.map(Self::map))
    }

    /// The visible templates; `None` if none is hidden.
    fn visible_templates(&self) -> Option<&TemplateSet> {
        let templates = &self.definitions().templates;
        match &self.labels {
            CallerLabels::These(own) if self.map::<ResourceTemplate>().has_labels() => {
                Some(self.templates.get_or_init(|| templates.visible_to(own)))
            }
            CallerLabels::These(_) | CallerLabels::Everything => None,
        }
    }

    /// The most specific template that a URI matches.
    pub(in crate::catalog) fn template(&self, uri: &ResourceUri) -> Option<Match> {
        self.definitions().templates.find(uri, self.visible_templates())
    }

    /// The number of templates of the agent, hidden ones included: a bound on work.
    pub(in crate::catalog) fn template_count(&self) -> usize {
        self.map::<ResourceTemplate>().len()
    }

    /// What is registered under a URI: a resource, or a file of a skill.
    pub fn resource(&self, uri: &str) -> Option<&Arc<Resource>> {
        let registered = self.get::<Resource>(uri);
        registered.or_else(|| Some(&self.skill_around(uri)?.file(uri)?.resource))
    }

    /// The definition of a URI: its resource, otherwise the mount with the longest URI whose file it is, otherwise the most
    /// specific template that it matches.
    ///
    /// # Errors
    /// [`Fault::ResourceNotFound`].
    pub fn answering(&self, uri: &ResourceUri) -> Result<Answering, Fault> {
        if let Some(resource) = self.resource(uri.as_str()) {
            return Ok(self.registered(uri, resource));
        }
        if let Some((mount, file)) = self.mounted(uri.as_str()) {
            return Ok(self.file(uri, Arc::clone(mount), file));
        }
        let found = self.template(uri).ok_or_else(|| Fault::ResourceNotFound(uri.clone()))?;
        Ok(self.rendered(uri, found))
    }

    /// The definition of a variant, if the caller sees it and it can answer the URI.
    pub(in crate::catalog) fn answering_as(
        &self,
        Variant { uri, definition }: &Variant,
    ) -> Option<Answering> {
        let Some(definition) = definition else {
            return self.resource(uri.as_str()).map(|resource| self.registered(uri, resource));
        };
        if let Some(mount) = self.get::<Mount>(definition) {
            let file = self.file_of(mount, mount.path_of(uri.as_str())?.0)?;
            return Some(self.file(uri, Arc::clone(mount), file));
        }
        let found = Match::of(self.get::<ResourceTemplate>(definition)?, uri)?;
        Some(self.rendered(uri, found))
    }

    fn registered(&self, uri: &ResourceUri, resource: &Arc<Resource>) -> Answering {
        let touched = &self.snapshot.touched_resources;
        let is_touched = resource.source.is_some() && touched.is_at(uri.as_str(), resource.revision);
        Answering::Registered(Arc::clone(resource), is_touched)
    }

    fn file(&self, uri: &ResourceUri, mount: Arc<Mount>, mut file: Resource) -> Answering {
        let (revision, is_touched) = self.last_change(uri, mount.name.as_str(), file.revision);
        file.revision = revision;
        Answering::Mounted(Arc::new(file), mount, is_touched)
    }

    fn rendered(&self, uri: &ResourceUri, mut found: Match) -> Answering {
        let mut is_touched = false;
        if found.template.source.is_some() {
            let text = found.template.uri_template.as_str();
            (found.revision, is_touched) = self.last_change(uri, text, found.revision);
        }
        Answering::Rendered(found, is_touched)
    }

    /// The newest revision of what a definition answers a URI with, given that of the definition, and whether it is that of
    /// a change of the content.
    fn last_change(&self, uri: &ResourceUri, definition: &str, own: Revision) -> (Revision, bool) {
        let touched = &self.snapshot.touched;
        // Only with labels do several definitions answer one URI.
        let variant = self.has_labels().then(|| Variant::by(definition, uri).to_string());
        let subjects = || [Some(uri.as_str()), variant.as_deref()].into_iter().flatten();
        let newest = subjects().map(|subject| touched.of(subject)).fold(own, Revision::max);
        (newest, subjects().any(|subject| touched.is_at(subject, newest)))
    }

    /// Checks that a URI can be read.
    ///
    /// # Errors
    /// [`Fault::ResourceNotFound`].
    pub fn check_readable(&self, uri: &ResourceUri) -> Result<(), Fault> {
        self.answering(uri).map(drop)
    }

    /// The number of comparisons that finding the definition of a URI takes.
    pub(in crate::catalog) fn comparisons(&self, uri: &ResourceUri) -> usize {
        match self.resource(uri.as_str()) {
            Some(_) => 1,
            None => 1 + self.definitions().templates.candidates(uri, self.visible_templates()),
        }
    }
}
