//! Which part of a tree is scanned.

use content_source::{ChangeHint, Path, Segment};
use file_tree::PathFilter;

/// The maximum number of paths that are scanned alone; with more, everything is.
const MAX_PATHS: usize = 64;

/// A part of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScanExtent {
    /// Everything.
    All,
    /// What is at and below these paths.
    Paths(Vec<String>),
}

impl ScanExtent {
    /// Nothing yet.
    pub(super) fn nothing() -> Self {
        Self::Paths(Vec::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Paths(paths) if paths.is_empty())
    }

    /// Adds what a notification is about, unless the mount excludes it; `tree` is the directory of the mount.
    pub(super) fn add(&mut self, hint: ChangeHint, tree: &Path, filter: &PathFilter) {
        let Self::Paths(paths) = self else { return };
        let relative = match hint {
            ChangeHint::Everything => None,
            ChangeHint::Path(path) => match path.segments.strip_prefix(&tree.segments[..]) {
                Some([]) => None,
                Some(below) => Some(below.iter().map(Segment::as_str).collect::<Vec<_>>().join("/")),
                // Above the tree, or beside it.
                None if tree.segments.starts_with(&path.segments) => None,
                None => return,
            },
        };
        match relative {
            Some(path) if !is_reached(filter, &path) || paths.contains(&path) => {}
            Some(path) if paths.len() < MAX_PATHS => paths.push(path),
            _ => *self = Self::All,
        }
    }

    /// Whether a file is part of it.
    pub(super) fn contains(&self, file: &str) -> bool {
        match self {
            Self::All => true,
            Self::Paths(paths) => paths.iter().any(|path| is_at_or_below(file, path)),
        }
    }

    /// Whether a scan lists a file, or enters a directory, whose path ends in `/`.
    pub(super) fn includes(&self, filter: &PathFilter, path: &str) -> bool {
        let Some(directory) = path.strip_suffix('/') else {
            return self.contains(path) && filter.selects(path);
        };
        let is_on_the_way = |paths: &[String]| paths.iter().any(|path| is_at_or_below(path, directory));
        let enters = match self {
            Self::All => true,
            Self::Paths(paths) => self.contains(directory) || is_on_the_way(paths),
        };
        enters && filter.enters(directory)
    }
}

/// Whether a file or a directory of a path may be listed.
fn is_reached(filter: &PathFilter, path: &str) -> bool {
    path.match_indices('/').all(|(slash, _)| filter.enters(&path[..slash]))
        && (filter.selects(path) || filter.enters(path))
}

fn is_at_or_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use content_source::{ChangeHint, Path, Segment};
    use file_tree::PathFilter;

    use super::{MAX_PATHS, ScanExtent};

    fn path(text: &str) -> Path {
        let segments = text.split('/').filter(|part| !part.is_empty());
        Path { segments: segments.map(|part| Segment::new(part).unwrap()).collect(), is_directory: false }
    }

    fn extent(tree: &str, hints: &[&str]) -> ScanExtent {
        let mut extent = ScanExtent::nothing();
        for hint in hints {
            extent.add(ChangeHint::Path(path(hint)), &path(tree), &filter(&[]));
        }
        extent
    }

    fn filter(exclude: &[&str]) -> PathFilter {
        let exclude: Vec<_> = exclude.iter().map(|&pattern| pattern.to_owned()).collect();
        PathFilter::new(&[], &exclude).unwrap()
    }

    #[test]
    fn hints_of_what_is_excluded_add_nothing() {
        let mut extent = ScanExtent::nothing();
        for hint in ["docs/target/a.md", "docs/target/deep/a.md", "docs/a/target", "docs/a/target/b"] {
            extent.add(ChangeHint::Path(path(hint)), &path("docs"), &filter(&["**/target", "**/target/**"]));
        }
        assert!(extent.is_empty(), "{extent:?}");
        // It may be a directory.
        extent.add(ChangeHint::Path(path("docs/a.log")), &path("docs"), &filter(&["*.log"]));
        assert_eq!(extent, ScanExtent::Paths(vec!["a.log".to_owned()]));
    }

    #[test]
    fn hints_are_relative_to_the_tree() {
        assert_eq!(
            extent("docs", &["docs/a/b.md", "other/c.md"]),
            ScanExtent::Paths(vec!["a/b.md".to_owned()])
        );
        assert_eq!(extent("docs", &["docs"]), ScanExtent::All);
        assert_eq!(extent("docs/a", &["docs"]), ScanExtent::All);
        let many: Vec<_> = (0..=MAX_PATHS).map(|number| number.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(extent("", &many), ScanExtent::All);
        assert_eq!(extent("", &["a", "a"]), ScanExtent::Paths(vec!["a".to_owned()]));
    }

    #[test]
    fn only_what_leads_to_the_paths_is_read() {
        let filter = PathFilter::new(&["**/*.md".to_owned()], &[]).unwrap();
        let extent = extent("", &["a/b.md", "c"]);
        let included = ["a/", "a/b.md", "c/", "c/d/", "c/d/e.md"];
        let others = ["b/", "a/c.md", "a/d/", "cc/", "c/d/e.txt", "a/b.mdx"];
        assert!(included.into_iter().all(|path| extent.includes(&filter, path)));
        assert!(!others.into_iter().any(|path| extent.includes(&filter, path)));
        assert!(ScanExtent::All.includes(&filter, "b/") && ScanExtent::All.includes(&filter, "b/a.md"));
    }
}
