//! Where content is within a connection: the variables of the definition are replaced by values already.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A segment of a path: not empty, not `.` or `..`, without `/`, `\` and NUL; decoded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Segment(String);

impl Segment {
    /// A valid segment; `None` for any other text.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let valid = !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\\', '\0']);
        valid.then_some(Self(text))
    }

    /// The segment as text, not percent-encoded.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A path relative to the root of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Path {
    /// The segments; none for the root itself.
    pub segments: Vec<Segment>,
    /// Whether it ends in `/`: a directory. The root is one.
    pub is_directory: bool,
}

/// How rows of a statement are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A list of objects, one for each row.
    Json,
    /// RFC 4180, with a header.
    Csv,
    /// The first column of each row, a line each.
    Text,
    /// The bytes of the only column of the only row.
    Blob,
}

/// What is fetched. It identifies the content within its connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Location {
    /// A path: of a URL, a file, an object or a file of a commit.
    Path {
        /// The path.
        path: Path,
        /// The query of a URL: names and values, not percent-encoded, in order.
        query: Vec<(String, String)>,
        /// The branch, tag or commit of a git repository, in place of the connection's.
        reference: Option<String>,
    },
    /// The rows of a statement.
    Statement {
        /// `@name` of a statement of the connection, or the statement itself. `{name}` stands for a parameter.
        statement: String,
        /// The values of the parameters, bound as text.
        parameters: BTreeMap<String, String>,
        /// How the rows are written.
        format: Format,
    },
}
