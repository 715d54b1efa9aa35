//! Which files of a tree are selected.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// The maximum number of globs of each list.
pub const MAX_GLOBS: usize = 64;
/// The maximum length of a glob in bytes.
pub const MAX_GLOB_BYTES: usize = 512;

/// Why a list of globs is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// More than [`MAX_GLOBS`].
    #[error("has more than {MAX_GLOBS} globs")]
    TooMany,
    /// Empty, or longer than [`MAX_GLOB_BYTES`].
    #[error("[{0}] must have 1 to {MAX_GLOB_BYTES} bytes")]
    Length(usize),
    /// Not a glob.
    #[error("[{index}] is not a glob: {problem}")]
    Syntax {
        /// Its position in the list.
        index: usize,
        /// What is wrong.
        problem: String,
    },
}

/// Selects files by their paths: those that a glob includes and none excludes. `*` and `?` do not match `/`, `**` does.
#[derive(Debug, Clone)]
pub struct PathFilter {
    /// `None` for everything.
    included: Option<GlobSet>,
    excluded: GlobSet,
    /// Directories of which nothing is included.
    pruned: GlobSet,
}

impl PathFilter {
    /// Compiles globs. Without any to include, everything is included.
    ///
    /// # Errors
    /// [`FilterError`] with the name of the list that it is about: `include` or `exclude`.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, (&'static str, FilterError)> {
        let included = compiled(include).map_err(|error| ("include", error))?;
        let excluded = compiled(exclude).map_err(|error| ("exclude", error))?;
        // What excludes everything in a directory excludes the directory, which is then not read.
        let pruned =
            exclude.iter().filter_map(|glob| glob.strip_suffix("/**")).filter(|glob| !glob.is_empty());
        let pruned = compiled(&pruned.map(str::to_owned).collect::<Vec<_>>());
        Ok(Self {
            included: (!include.is_empty()).then_some(included),
            excluded,
            pruned: pruned.map_err(|error| ("exclude", error))?,
        })
    }

    /// Whether the file of a path is selected.
    pub fn selects(&self, path: &str) -> bool {
        self.included.as_ref().is_none_or(|included| included.is_match(path)) && !self.excluded.is_match(path)
    }

    /// Whether files below a directory may be selected.
    pub fn enters(&self, directory: &str) -> bool {
        !self.pruned.is_match(directory)
    }
}

fn compiled(globs: &[String]) -> Result<GlobSet, FilterError> {
    if globs.len() > MAX_GLOBS {
        return Err(FilterError::TooMany);
    }
    let mut set = GlobSetBuilder::new();
    for (index, text) in globs.iter().enumerate() {
        if !(1..=MAX_GLOB_BYTES).contains(&text.len()) {
            return Err(FilterError::Length(index));
        }
        set.add(glob(text).map_err(|error| syntax(index, &error))?);
    }
    set.build().map_err(|error| syntax(globs.len().saturating_sub(1), &error))
}

fn glob(text: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build()
}

fn syntax(index: usize, error: &globset::Error) -> FilterError {
    FilterError::Syntax { index, problem: error.kind().to_string() }
}

#[cfg(test)]
mod tests {
    use super::{FilterError, MAX_GLOB_BYTES, MAX_GLOBS, PathFilter};

    fn filter(include: &[&str], exclude: &[&str]) -> PathFilter {
        let owned = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
        PathFilter::new(&owned(include), &owned(exclude)).unwrap()
    }

    #[test]
    fn globs_select_paths() {
        let markdown = filter(&["**/*.md", "top/*.txt"], &["**/draft/**", "**/_*"]);
        let paths = [
            "a.md",
            "a/b/c.md",
            "top/a.txt",
            "top/a/b.txt",
            "a.txt",
            "a/draft/b.md",
            "a/_b.md",
            "draft/a.md",
        ];
        let selected: Vec<_> = paths.into_iter().filter(|path| markdown.selects(path)).collect();
        assert_eq!(selected, ["a.md", "a/b/c.md", "top/a.txt"]);
        assert!(!markdown.enters("a/draft") && !markdown.enters("draft") && markdown.enters("a"));
        let all = filter(&[], &[]);
        assert!(all.selects("a/b") && all.enters("a"));
    }

    #[test]
    fn lists_of_globs_are_bounded_and_checked() {
        let new = |globs: Vec<String>| PathFilter::new(&globs, &[]).err();
        assert_eq!(new(vec!["a".to_owned(); MAX_GLOBS + 1]), Some(("include", FilterError::TooMany)));
        assert_eq!(new(vec!["a".repeat(MAX_GLOB_BYTES + 1)]), Some(("include", FilterError::Length(0))));
        assert_eq!(new(vec![String::new()]), Some(("include", FilterError::Length(0))));
        let (list, error) = PathFilter::new(&[], &["a".to_owned(), "[".to_owned()]).err().unwrap();
        assert_eq!(list, "exclude");
        assert!(matches!(error, FilterError::Syntax { index: 1, .. }), "{error}");
    }
}
