//! Errors. Each message continues the name of what it is about, such as "path has an empty segment".

use crate::frontmatter::MAX_FRONTMATTER_BYTES;
use crate::path::MAX_PATH_BYTES;

/// Why a text is not the path of a skill or of a file in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is empty.
    #[error("is empty")]
    Empty,
    /// It is longer than [`MAX_PATH_BYTES`].
    #[error("is longer than {MAX_PATH_BYTES} bytes")]
    TooLong,
    /// It begins with `/`, or with a drive as in `C:`.
    #[error("is absolute; expected a path relative to the folder of the skill")]
    Absolute,
    /// It has an empty segment.
    #[error("has an empty segment")]
    EmptySegment,
    /// It has a segment `.` or `..`.
    #[error("has a segment . or ..")]
    Dots,
    /// It contains a backslash.
    #[error("contains a backslash; separate segments by /")]
    Backslash,
    /// It contains a control character, or one that formats bidirectional text.
    #[error("contains a control character")]
    Control,
    /// The first of several segments, which is the authority of the URI, has other characters than those.
    #[error("has a first segment with other characters than a-z, 0-9, -, . and _")]
    Authority,
    /// The last segment is not the name of a skill.
    #[error("does not end in the name of a skill: 1 to 64 of a-z and 0-9, with single hyphens between them")]
    Name,
}

/// Why the frontmatter of a `SKILL.md` is refused. The lines are those of the file, from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrontmatterError {
    /// The file is not UTF-8, or contains NUL.
    #[error("is not text in UTF-8 without NUL")]
    NotText,
    /// The first line is not `---`.
    #[error("must begin with a line ---")]
    Unopened,
    /// No later line is `---`.
    #[error("has no line --- that closes the frontmatter")]
    Unclosed,
    /// It is longer than [`MAX_FRONTMATTER_BYTES`].
    #[error("has frontmatter of more than {MAX_FRONTMATTER_BYTES} bytes")]
    TooLong,
    /// It is not YAML.
    #[error("line {line}: {message}")]
    Yaml {
        /// The line.
        line: usize,
        /// What the parser expected.
        message: String,
    },
    /// It uses a part of YAML that readers of skills refuse.
    #[error("line {line}: {what} not supported in frontmatter")]
    Unsupported {
        /// The line.
        line: usize,
        /// The construct with its verb, such as `anchors are`.
        what: &'static str,
    },
    /// It is nested more than 32 levels deep.
    #[error("line {0}: nested more than 32 levels deep")]
    TooDeep(usize),
    /// It is not a mapping.
    #[error("line {0}: the frontmatter must be a mapping of keys to values")]
    NotAMapping(usize),
    /// A key is not a string.
    #[error("line {0}: a key is not a string; quote it")]
    Key(usize),
    /// A key occurs twice in one mapping.
    #[error("line {line}: duplicate key {key:?}")]
    Duplicate {
        /// The line of the second.
        line: usize,
        /// The key.
        key: String,
    },
    /// A number that JSON does not have.
    #[error("line {line}: {text:?} is not a number of JSON; quote it")]
    Number {
        /// The line.
        line: usize,
        /// As written.
        text: String,
    },
    /// A field does not follow the Agent Skills specification.
    #[error("frontmatter: {0}")]
    Field(&'static str),
}

/// Why an archive is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// It cannot be read.
    #[error("the archive cannot be read: {0}")]
    Unreadable(String),
    /// It has too many entries, directories included.
    #[error("the archive has more than {0} entries")]
    Entries(usize),
    /// It has too many files.
    #[error("the skill has more than {0} files")]
    Files(usize),
    /// Its files have too many bytes, or the archive does with its headers.
    #[error("the files of the skill have more than {0} bytes")]
    Bytes(usize),
    /// An entry is neither a file nor a directory.
    #[error("{path:?} is {kind}; expected files and directories")]
    Kind {
        /// The path of the entry.
        path: String,
        /// What it is, such as `a link`.
        kind: &'static str,
    },
    /// An entry is encrypted.
    #[error("{0:?} is encrypted")]
    Encrypted(String),
    /// The path of an entry is not UTF-8.
    #[error("a path in the archive is not UTF-8")]
    Encoding,
    /// The path of a directory is refused.
    #[error("{path:?} {fault}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        fault: PathError,
    },
}

/// Why the files of a skill are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkillError {
    /// There is no `SKILL.md`.
    #[error("SKILL.md is missing")]
    NoSkillMd,
    /// There are too many files.
    #[error("the skill has more than {0} files")]
    Files(usize),
    /// The files have too many bytes.
    #[error("the files of the skill have more than {0} bytes")]
    Bytes(usize),
    /// The path of a file is refused.
    #[error("{path:?} {fault}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        fault: PathError,
    },
    /// Two files have the same path.
    #[error("{0:?} occurs twice")]
    Twice(String),
    /// Two paths differ in their Unicode normalization only.
    #[error("{0:?} and {1:?} are the same path in Unicode normalization form C")]
    Normalization(String, String),
    /// A path is that of a file and of a directory.
    #[error("{0:?} is both a file and a directory")]
    FileAndDirectory(String),
    /// The name in the frontmatter is not that of the folder.
    #[error("frontmatter: name {name:?} differs from the folder {folder:?}")]
    Name {
        /// The name in the frontmatter.
        name: String,
        /// The last segment of the path.
        folder: String,
    },
    /// `SKILL.md` is refused.
    #[error("SKILL.md {0}")]
    Frontmatter(#[from] FrontmatterError),
}
