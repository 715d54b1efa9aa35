//! Skills: the checks when one is registered. Its files count as resources.

use std::sync::Arc;

use ::skill::{FilePath, Frontmatter, Limits, SKILL_MD, SkillError, SkillPath};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::Catalog;
use super::definitions::Registered;
use super::limits::CatalogLimits;
use super::resources::RawContent;
use super::skill_placement::check_free;
use super::target::Target;
use crate::model::agent::Agent;
use crate::model::audit::write::AuditedWrite;
use crate::model::definition::DefinitionKind;
use crate::model::fault::Fault;
use crate::model::precondition::{Precondition, Written};
use crate::model::resource::Resource;
use crate::model::scope::Revision;
use crate::model::skill::{NewSkill, NewSkillFile, Skill, SkillRoot};
use crate::store::StoreError;
use crate::store::write::Write;

impl Registered for Skill {
    fn most(limits: &CatalogLimits) -> usize {
        limits.resources_per_agent
    }

    async fn add(catalog: &Catalog, write: &mut Write, target: &Target, new: &NewSkill) -> Result<(), Fault> {
        check_free(write, target, &new.root).await?;
        Self::count(catalog, write, target, i32::try_from(new.files.len()).unwrap_or(i32::MAX)).await
    }

    async fn count(catalog: &Catalog, write: &mut Write, target: &Target, by: i32) -> Result<(), Fault> {
        Resource::count(catalog, write, target, by).await
    }
}

/// A file of a skill to be written.
#[derive(Debug, Clone)]
pub struct RawFile {
    /// The path of the skill.
    pub skill: SkillPath,
    /// Its path in the skill.
    pub path: FilePath,
    /// Its content.
    pub content: RawContent,
}

impl RawFile {
    /// The skill with this file; a new one if it is `SKILL.md`.
    fn of(&self, old: Option<&Skill>, limits: Limits) -> Result<NewSkill, Fault> {
        let is_skill_md = self.path.as_str() == SKILL_MD;
        if old.is_none() && !is_skill_md {
            return Err(Fault::NotFound(Skill::NAME));
        }
        let others = old.map_or(&[][..], |old| &old.files);
        let (replaced, others): (Vec<_>, Vec<_>) =
            others.iter().partition(|file| file.path == self.path.as_str());
        let mime_type = self.content.mime_type.clone();
        let present = || replaced.iter().find_map(|file| file.part.mime_type.clone());
        let new =
            NewSkillFile::new(self.path.clone(), mime_type.or_else(present), self.content.bytes.clone());
        let refused = |error: SkillError| Fault::invalid_params(error.to_string());
        if others.len() >= limits.files {
            return Err(refused(SkillError::Files(limits.files)));
        }
        let sizes = others.iter().map(|file| file.part.size).chain([new.content.part.size]);
        if sizes.sum::<u64>() > u64::try_from(limits.bytes).unwrap_or(u64::MAX) {
            return Err(refused(SkillError::Bytes(limits.bytes)));
        }
        let paths = others.iter().map(|file| file.path.as_str()).chain([self.path.as_str()]);
        ::skill::check_paths(paths).map_err(refused)?;
        let frontmatter = match old {
            Some(old) if !is_skill_md => old.frontmatter.clone(),
            _ => raw(&::skill::frontmatter(&self.skill, &self.content.bytes).map_err(refused)?)?,
        };
        let mut files: Vec<_> = others.into_iter().filter_map(NewSkillFile::stored).collect();
        files.push(new);
        let labels = old.map(|old| old.labels.clone()).unwrap_or_default();
        NewSkill::new(SkillRoot::of(&self.skill), frontmatter, labels, files)
    }
}

/// A file of a registered skill with its bytes.
#[derive(Debug)]
pub struct ReadFile {
    /// Its MIME type.
    pub mime_type: Option<String>,
    /// Its bytes.
    pub bytes: Bytes,
    /// The revision that last changed the skill.
    pub revision: Revision,
}

/// Frontmatter as it is stored.
///
/// # Errors
/// [`Fault::Internal`] if it is no JSON.
pub fn raw(frontmatter: &Frontmatter) -> Result<Box<RawValue>, Fault> {
    let raw = serde_json::value::to_raw_value(frontmatter.value());
    raw.map_err(|error| Fault::Internal(format!("cannot encode frontmatter: {error}")))
}

impl Catalog {
    /// Replaces all files of a skill, or adds a skill. It keeps its labels, and each file the MIME type of the one that it
    /// replaces, unless text becomes bytes or bytes text.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn put_files(
        self: &Arc<Self>,
        agent: &Agent,
        new: NewSkill,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        let root = new.root.clone();
        let make = move |old: Option<&Skill>| {
            let labels = old.map_or_else(|| new.labels.clone(), |old| old.labels.clone());
            let mut made = NewSkill { labels, ..new.clone() };
            for file in &mut made.files {
                let replaced =
                    old.and_then(|old| old.files.iter().find(|old| old.path == file.path.as_str()));
                if let Some(replaced) = replaced.filter(|old| old.part.kind == file.content.part.kind) {
                    file.content.part.mime_type.clone_from(&replaced.part.mime_type);
                }
            }
            Ok(Arc::new(made))
        };
        self.put_made(agent, root, make, condition, audited).await
    }

    /// Writes one file of a skill; adds a skill if it is `SKILL.md` and there is none.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Fault::NotFound`] if there is no skill.
    pub async fn put_file(
        self: &Arc<Self>,
        agent: &Agent,
        file: RawFile,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        let limits = self.limits.skill;
        let root = SkillRoot::of(&file.skill);
        let make = move |old: Option<&Skill>| file.of(old, limits).map(Arc::new);
        self.put_made(agent, root, make, condition, audited).await
    }

    /// Reads a file of a skill.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn read_file(
        &self,
        agent: &Agent,
        root: &SkillRoot,
        path: &FilePath,
    ) -> Result<ReadFile, Fault> {
        let mut view = self.store.snapshot().await?;
        let key = root.as_str().to_owned();
        let skill = view.definitions::<Skill>(agent.into(), Some(&[key]), &self.system).await?.pop();
        view.end().await?;
        let skill = skill.ok_or(Fault::NotFound(Skill::NAME))?;
        let file = skill.files.into_iter().find(|file| file.path == path.as_str());
        let part = file.ok_or(Fault::NotFound("file"))?.part;
        let mut bytes = self.store.contents(agent.tenant, agent.uid, &[part.hash]).await?;
        let bytes = bytes.remove(&part.hash).ok_or(StoreError::Unreadable("content"))?;
        Ok(ReadFile { mime_type: part.mime_type, bytes, revision: skill.revision })
    }

    /// Removes a file of a skill.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Fault::NotFound`] if there is no such file.
    pub async fn delete_file(
        self: &Arc<Self>,
        agent: &Agent,
        (root, path): (SkillRoot, FilePath),
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        if path.as_str() == SKILL_MD {
            return Err(Fault::invalid_params("SKILL.md cannot be deleted; delete the skill"));
        }
        let key = root.clone();
        let make = move |old: Option<&Skill>| {
            let old = old.ok_or(Fault::NotFound(Skill::NAME))?;
            let left: Vec<_> = old.files.iter().filter(|file| file.path != path.as_str()).collect();
            if left.len() == old.files.len() {
                return Err(Fault::NotFound("file"));
            }
            let files = left.into_iter().filter_map(NewSkillFile::stored).collect();
            let new = NewSkill::new(root.clone(), old.frontmatter.clone(), old.labels.clone(), files);
            new.map(Arc::new)
        };
        self.put_made(agent, key, make, condition, audited).await
    }
}
