//! Validates the files of a skill.

use std::collections::{BTreeMap, HashMap};

use unicode_normalization::UnicodeNormalization;

use crate::error::SkillError;
use crate::frontmatter::Frontmatter;
use crate::path::{FilePath, SkillPath};

/// The file that makes a folder a skill.
pub const SKILL_MD: &str = "SKILL.md";

/// What a skill may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of files.
    pub files: usize,
    /// The maximum bytes of all files.
    pub bytes: usize,
}

/// A file as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawFile {
    /// Its path in the skill.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A file of a valid skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its path in the skill.
    pub path: FilePath,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A valid skill.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedSkill {
    /// The frontmatter of its `SKILL.md`.
    pub frontmatter: Frontmatter,
    /// Its files in byte order of their paths.
    pub files: Vec<File>,
}

/// Validates the files of a skill.
///
/// # Errors
/// [`SkillError`].
pub fn check(path: &SkillPath, files: Vec<RawFile>, limits: Limits) -> Result<CheckedSkill, SkillError> {
    if files.len() > limits.files {
        return Err(SkillError::Files(limits.files));
    }
    if files.iter().map(|file| file.bytes.len()).fold(0, usize::saturating_add) > limits.bytes {
        return Err(SkillError::Bytes(limits.bytes));
    }
    let mut by_path = BTreeMap::new();
    for RawFile { path, bytes } in files {
        let parsed = FilePath::parse(&path);
        let parsed = parsed.map_err(|fault| SkillError::Path { path: path.clone(), fault })?;
        if by_path.insert(parsed, bytes).is_some() {
            return Err(SkillError::Twice(path));
        }
    }
    check_paths(by_path.keys().map(FilePath::as_str))?;
    let skill_md = by_path.iter().find(|(path, _)| path.as_str() == SKILL_MD);
    let (_, skill_md) = skill_md.ok_or(SkillError::NoSkillMd)?;
    let frontmatter = frontmatter(path, skill_md)?;
    let files = by_path.into_iter().map(|(path, bytes)| File { path, bytes }).collect();
    Ok(CheckedSkill { frontmatter, files })
}

/// Reads the frontmatter of a `SKILL.md`, whose name must be that of the folder.
///
/// # Errors
/// [`SkillError`].
pub fn frontmatter(path: &SkillPath, skill_md: &[u8]) -> Result<Frontmatter, SkillError> {
    let frontmatter = Frontmatter::of(skill_md)?;
    if frontmatter.name() != path.name() {
        let (name, folder) = (frontmatter.name().to_owned(), path.name().to_owned());
        return Err(SkillError::Name { name, folder });
    }
    Ok(frontmatter)
}

/// Checks that the paths are different files and directories wherever they are unpacked: also on file systems that
/// normalize names.
///
/// # Errors
/// [`SkillError`].
pub fn check_paths<'p>(paths: impl Iterator<Item = &'p str>) -> Result<(), SkillError> {
    // By their normalized names: how they are written, and whether they are directories.
    let mut known: HashMap<String, (&str, bool)> = HashMap::new();
    for path in paths {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        for end in ends {
            let (name, is_directory) = (&path[..end], end < path.len());
            match known.insert(name.nfc().collect(), (name, is_directory)) {
                Some((other, _)) if other != name => {
                    return Err(SkillError::Normalization(other.to_owned(), name.to_owned()));
                }
                Some((_, was_directory)) if was_directory != is_directory => {
                    return Err(SkillError::FileAndDirectory(name.to_owned()));
                }
                _ => {}
            }
        }
    }
    Ok(())
}
