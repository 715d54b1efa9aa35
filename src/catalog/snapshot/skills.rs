//! What a caller sees of skills: their files, `SKILL.md` in the list of resources, and directories.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::view::View;
use crate::model::call::Page;
use crate::model::ids::ResourceUri;
use crate::model::listed::ListedResource;
use crate::model::mount::Mount;
use crate::model::resource::{DIRECTORY, Definition, Resource};
use crate::model::skill::{SKILL_URIS, Skill};

/// The size of a page of skills, above which no further one is added to it.
const PAGE_BYTES: usize = 512 << 10;
/// The size of a file in a list of skills without its URI.
const FILE_BYTES: usize = 128;

impl View {
    /// The skill whose folder contains a URI.
    pub fn skill_around(&self, uri: &str) -> Option<&Arc<Skill>> {
        if !uri.starts_with(SKILL_URIS) {
            return None;
        }
        // Skills are not nested, and what is in a folder stands directly after it.
        let skill = self.map::<Skill>().at_or_before(uri)?;
        (uri.starts_with(skill.root.as_str()) && self.sees(skill.as_ref())).then_some(skill)
    }

    /// The skill of the URI of its `SKILL.md`.
    pub fn skill(&self, uri: &str) -> Option<&Arc<Skill>> {
        self.skill_around(uri).filter(|skill| skill.skill_md.uri.as_str() == uri)
    }

    /// Whether a skill or a directory of this URI exists and is hidden from the caller.
    pub fn hides_skill(&self, uri: &str) -> bool {
        let exists = |view: &Self| view.skill(uri).is_some() || view.directory(uri, None, 1).is_some();
        !exists(self) && exists(&Self::unfiltered(Arc::clone(self.shared())))
    }

    /// A page of skills, at least one if there is one.
    pub fn skills(&self, after: Option<&str>, size: usize) -> Page<Arc<Skill>> {
        let mut page = self.page::<Skill>(after, size);
        let mut bytes = 0;
        let fitting = page.items.iter().take_while(|skill| {
            let fits = bytes < PAGE_BYTES;
            let uris = skill.files.iter().map(|file| FILE_BYTES + file.resource.uri.as_str().len());
            bytes += skill.frontmatter.get().len() + uris.sum::<usize>();
            fits
        });
        let fitting = fitting.count();
        page.more |= fitting < page.items.len();
        page.items.truncate(fitting);
        page
    }

    /// A page of the list of resources: the registered ones, the `SKILL.md` of each skill, and the files of mounts, in byte
    /// order of their URIs.
    pub(super) fn resources(&self, after: Option<&str>, size: usize) -> Page<ListedResource> {
        let Page { items, more } = self.page::<Resource>(after, size);
        let mut page = registered(items, more);
        if self.map::<Mount>().len() > 0 {
            page = merged(page, self.mounted_after(after, size), size);
        }
        if self.map::<Skill>().len() == 0 {
            return page;
        }
        // Folders are in the order of their `SKILL.md`, since none is inside another one: the folders after a URI are those
        // whose `SKILL.md` is, whatever has the URI.
        let skills = self.page::<Skill>(after, size);
        let items = skills.items.iter().map(|skill| Arc::clone(&skill.skill_md));
        merged(page, registered(items, skills.more), size)
    }

    /// A page of what is directly in a directory: of a skill, or one above skills. `None` if there is no such directory.
    pub fn directory(&self, uri: &str, after: Option<&str>, size: usize) -> Option<Page<ListedResource>> {
        if !uri.starts_with(SKILL_URIS) {
            return None;
        }
        let inside = format!("{uri}/");
        let mut items = self.skill_around(&inside).map(|skill| children(skill, &inside)).unwrap_or_default();
        if items.is_empty() {
            return self.above_skills(&inside, after, size);
        }
        items.retain(|child| after.is_none_or(|after| child.uri.as_str() > after));
        let more = items.len() > size;
        items.truncate(size);
        Some(registered(items, more))
    }

    /// A page of the directories directly below one that contains skills.
    fn above_skills(&self, inside: &str, after: Option<&str>, size: usize) -> Option<Page<ListedResource>> {
        let first = self.page::<Skill>(Some(inside), 1).items.pop()?;
        if !first.root.as_str().starts_with(inside) {
            return None;
        }
        let mut page = Page { items: Vec::new(), more: false };
        let mut after = after.map_or_else(|| inside.to_owned(), past);
        // One look-up for each child, however many skills are below it.
        while let Some(next) = self.page::<Skill>(Some(&after), 1).items.pop() {
            let Some(rest) = next.root.as_str().strip_prefix(inside) else { break };
            if page.items.len() == size {
                page.more = true;
                break;
            }
            let name = rest.split('/').next().unwrap_or(rest);
            let uri = format!("{inside}{name}");
            after = past(&uri);
            let found = directory(&uri, &next.skill_md);
            page.items.extend(found.map(|found| ListedResource::Registered(Arc::new(found))));
        }
        Some(page)
    }
}

fn registered(items: impl IntoIterator<Item = Arc<Resource>>, more: bool) -> Page<ListedResource> {
    Page { items: items.into_iter().map(ListedResource::Registered).collect(), more }
}

/// The first items of two pages after the same position.
fn merged(mut page: Page<ListedResource>, other: Page<ListedResource>, size: usize) -> Page<ListedResource> {
    if page.items.is_empty() {
        return other;
    }
    page.items.extend(other.items);
    page.items.sort_by(|one, other| one.uri().cmp(&other.uri()));
    page.more |= other.more || page.items.len() > size;
    page.items.truncate(size);
    page
}

/// A text that is after everything below a directory, and before what follows it.
fn past(directory: &str) -> String {
    format!("{directory}0")
}

/// What is directly in a directory of a skill, in byte order of the URIs.
fn children(skill: &Skill, inside: &str) -> Vec<Arc<Resource>> {
    let mut items = BTreeMap::new();
    for file in &skill.files {
        let Some(rest) = file.resource.uri.as_str().strip_prefix(inside) else { continue };
        match rest.split_once('/') {
            None => {
                items.insert(file.resource.uri.to_string(), Arc::clone(&file.resource));
            }
            Some((name, _)) => {
                let uri = format!("{inside}{name}");
                if !items.contains_key(&uri)
                    && let Some(directory) = directory(&uri, &skill.skill_md)
                {
                    items.insert(uri, Arc::new(directory));
                }
            }
        }
    }
    items.into_values().collect()
}

/// A directory that contains a skill or is in it.
fn directory(uri: &str, skill_md: &Resource) -> Option<Resource> {
    let name = uri.rsplit('/').next().unwrap_or(uri);
    let definition = Definition {
        name: percent_encoding::percent_decode_str(name).decode_utf8_lossy().into_owned(),
        title: None,
        description: None,
        mime_type: Some(DIRECTORY.to_owned()),
        annotations: None,
        icons: None,
        meta: None,
    };
    Some(Resource {
        uri: ResourceUri::parse(uri).ok()?,
        definition,
        labels: skill_md.labels.clone(),
        parts: Vec::new(),
        source: None,
        revision: skill_md.revision,
        last_modified: skill_md.last_modified,
    })
}
