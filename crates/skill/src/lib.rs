//! [Agent Skills](https://agentskills.io/specification) as they are served over MCP: a folder whose `SKILL.md` begins with
//! YAML frontmatter.
//!
//! - [`unpack`] reads a ZIP or gzipped tar archive into memory, within [`Limits`] that are counted while unpacking;
//! - [`check`] validates the files of a skill: their names, `SKILL.md`, and that it is named after its folder;
//! - [`Frontmatter::of`] reads the frontmatter as a JSON value in the order and with the types that were written;
//! - [`SkillPath`] and [`FilePath`] are the names that a skill and its files may have, and how these are written in a URI.
//!
//! The crate does no I/O. Every error is typed, and its message continues the name of what it is about.
//!
//! ```
//! use skill::{Limits, RawFile, SkillPath, check};
//!
//! let path = SkillPath::parse("acme/refunds")?;
//! let text = "---\nname: refunds\ndescription: How to refund an order\n---\nAsk for the number of the order.\n";
//! let file = RawFile { path: "SKILL.md".to_owned(), bytes: text.into() };
//! let checked = check(&path, vec![file], Limits { files: 512, bytes: 16 << 20 })?;
//!
//! assert_eq!(checked.frontmatter.name(), "refunds");
//! assert_eq!(path.root_uri(), "skill://acme/refunds/");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod archive;
mod error;
mod frontmatter;
mod mime;
mod path;
mod scalar;
mod skill;
#[cfg(test)]
mod tests;
mod value;
mod yaml;

pub use self::archive::{Format, unpack};
pub use self::error::{ArchiveError, FrontmatterError, PathError, SkillError};
pub use self::frontmatter::{Frontmatter, MAX_FRONTMATTER_BYTES};
pub use self::mime::{MARKDOWN, by_name as mime_type_by_name, mime_type};
pub use self::path::{FilePath, MAX_PATH_BYTES, SCHEME, SkillPath, normal_uri_path};
pub use self::skill::{CheckedSkill, File, Limits, RawFile, SKILL_MD, check, check_paths, frontmatter};
pub use self::value::Value;
