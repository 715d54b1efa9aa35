//! The entry of a skill in results (SEP-2640).

use serde::Serialize;
use serde_json::value::RawValue;

use crate::model::skill::Skill;

/// The entry of a skill, with all of its files.
#[derive(Serialize)]
pub(super) struct SkillEntry<'a> {
    uri: &'a str,
    frontmatter: &'a RawValue,
    resources: Vec<FileEntry<'a>>,
}

#[derive(Serialize)]
struct FileEntry<'a> {
    uri: &'a str,
    digest: String,
    size: u64,
}

impl<'a> SkillEntry<'a> {
    pub(super) fn of(skill: &'a Skill) -> Self {
        let files = skill.files.iter().map(|file| FileEntry {
            uri: file.resource.uri.as_str(),
            digest: format!("sha256:{}", file.part.hash),
            size: file.part.size,
        });
        let (uri, frontmatter) = (skill.skill_md.uri.as_str(), &*skill.frontmatter);
        Self { uri, frontmatter, resources: files.collect() }
    }
}
