//! The source of files: paths, links, special files, races, scans and notifications.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::egress::SystemResolver;
use crate::kind::{Kind, connect};
use crate::pace::assert_paced;

mod traversal;
mod watching;

const BOUNDS: Bounds<'_> = Bounds { bytes: 1024 * 1024, entries: 100, since: None, pace: None };

#[test]
fn only_names_that_cannot_be_listed_are_skipped() {
    let of = |errno: Errno| listed(Err::<(), _>(io::Error::from(errno)));
    for skipped in [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::ACCESS, Errno::PERM] {
        assert_eq!(of(skipped), Ok(None), "{skipped}");
    }
    // The file may be there.
    for failed in [Errno::STALE, Errno::IO, Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
        assert_eq!(of(failed), Err(FetchError::Unreachable), "{failed}");
    }
    assert_eq!(listed(Ok(1)), Ok(Some(1)));
}

/// A root of files, with a directory beside it that must not be read.
struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        for name in ["root", "outside", "data"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Writes a file below the root.
    fn write(&self, path: &str, text: &str) {
        let path = self.path("root").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn context(&self) -> Arc<SourceContext> {
        context(vec![self.path("root")], &self.path("data"))
    }

    fn source(&self) -> Arc<dyn Source> {
        source(&self.path("root"), &self.context())
    }
}

fn context(file_roots: Vec<PathBuf>, denied: &std::path::Path) -> Arc<SourceContext> {
    Arc::new(SourceContext {
        file_roots,
        denied_paths: vec![denied.to_owned()],
        cache_dir: PathBuf::new(),
        cache_bytes: 0,
        own_database: None,
        resolver: Arc::new(SystemResolver::default()),
    })
}

fn source(root: &std::path::Path, context: &Arc<SourceContext>) -> Arc<dyn Source> {
    connect(Kind::File, &json!({"root": root}), &Map::new(), context).unwrap()
}

/// The path of a text; `None` if no location has it.
fn path(text: &str) -> Option<Path> {
    let (segments, is_directory) = match text.strip_suffix('/') {
        Some(directory) => (directory, true),
        None => (text, text.is_empty()),
    };
    let segments = if segments.is_empty() && is_directory && text.len() < 2 {
        Vec::new()
    } else {
        segments.split('/').map(Segment::new).collect::<Option<_>>()?
    };
    Some(Path { segments, is_directory })
}

fn at(text: &str) -> Location {
    Location::Path { path: path(text).unwrap(), query: Vec::new(), reference: None }
}

/// Names and texts of what a path has.
async fn texts(source: &Arc<dyn Source>, path: &str) -> Result<Vec<(Option<String>, String)>, FetchError> {
    match source.fetch(&at(path), None, BOUNDS).await? {
        Fetched::Contents { contents, .. } => Ok(contents
            .into_iter()
            .map(|content| (content.name, String::from_utf8_lossy(&content.bytes).into_owned()))
            .collect()),
        Fetched::Unchanged => panic!("nothing was known"),
    }
}

fn named(names: &[(&str, &str)]) -> Vec<(Option<String>, String)> {
    names.iter().map(|(name, text)| (Some((*name).to_owned()), (*text).to_owned())).collect()
}

/// Makes the changes of files old enough that their times stand for their bytes.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(3100)).await;
}

#[tokio::test]
async fn a_file_has_bytes_and_a_time_and_is_revalidated() {
    let files = Files::new();
    files.write("guides/intro.md", "# Intro");
    let source = files.source();
    let Ok(Fetched::Contents { contents, validator: None }) =
        source.fetch(&at("guides/intro.md"), None, BOUNDS).await
    else {
        panic!("a file that has just changed has no validator")
    };
    let metadata = fs::metadata(files.path("root/guides/intro.md")).unwrap();
    let modified = Some(time::OffsetDateTime::from(metadata.modified().unwrap()));
    let bytes = bytes::Bytes::from_static(b"# Intro");
    let expected = crate::source::Content { name: None, mime_type: None, modified, bytes };
    assert_eq!(contents, [expected]);

    settle().await;
    let Ok(Fetched::Contents { validator: Some(known), .. }) =
        source.fetch(&at("guides/intro.md"), None, BOUNDS).await
    else {
        panic!("settled")
    };
    let again = source.fetch(&at("guides/intro.md"), Some(&known), BOUNDS).await;
    assert_eq!(again, Ok(Fetched::Unchanged));
    // The same length and time of modification: the change of the metadata shows it.
    files.write("guides/intro.md", "# Other");
    let file = fs::File::options().write(true).open(files.path("root/guides/intro.md")).unwrap();
    file.set_modified(metadata.modified().unwrap()).unwrap();
    let Ok(Fetched::Contents { contents, .. }) =
        source.fetch(&at("guides/intro.md"), Some(&known), BOUNDS).await
    else {
        panic!("changed")
    };
    assert_eq!(&contents[0].bytes[..], b"# Other");
}

#[tokio::test]
async fn a_directory_has_the_regular_files_directly_in_it() {
    let files = Files::new();
    for (path, text) in [("d/b", "2"), ("d/a", "1"), ("d/é", "3"), ("d/deeper/c", "no"), ("top", "t")] {
        files.write(path, text);
    }
    symlink("../top", files.path("root/d/link")).unwrap();
    symlink("../../outside/x", files.path("root/d/leads out")).unwrap();
    symlink("deeper", files.path("root/d/linked directory")).unwrap();
    symlink("nowhere", files.path("root/d/dangling")).unwrap();
    fs::write(files.path("outside/x"), "no").unwrap();
    fs::write(files.path("root/d/back\\slash"), "no").unwrap();
    let source = files.source();
    let expected = named(&[("a", "1"), ("b", "2"), ("link", "t"), ("é", "3")]);
    assert_eq!(texts(&source, "d/").await, Ok(expected));
    assert_eq!(texts(&source, "").await, Ok(named(&[("top", "t")])));
    assert_eq!(texts(&source, "d/deeper/").await, Ok(named(&[("c", "no")])));

    settle().await;
    let Ok(Fetched::Contents { validator: Some(known), .. }) = source.fetch(&at("d/"), None, BOUNDS).await
    else {
        panic!("settled")
    };
    assert_eq!(source.fetch(&at("d/"), Some(&known), BOUNDS).await, Ok(Fetched::Unchanged));
    fs::rename(files.path("root/d/a"), files.path("root/d/z")).unwrap();
    let again = source.fetch(&at("d/"), Some(&known), BOUNDS).await;
    assert!(matches!(again, Ok(Fetched::Contents { ref contents, .. }) if contents.len() == 4), "{again:?}");
}

#[tokio::test]
async fn what_is_read_is_bounded() {
    let files = Files::new();
    files.write("d/a", "12345");
    files.write("d/b", "67890");
    let source = files.source();
    let cases = [
        ("d/a", 5, 9, true),
        ("d/a", 4, 9, false),
        ("d/", 10, 2, true),
        ("d/", 9, 2, false),
        ("d/", 10, 1, false),
    ];
    for (path, bytes, entries, fits) in cases {
        let fetched = source.fetch(&at(path), None, Bounds { bytes, entries, since: None, pace: None }).await;
        assert_eq!(fetched.is_ok(), fits, "{path} {bytes} {entries}");
        assert!(fits || fetched == Err(FetchError::TooLarge), "{path} {bytes} {entries}");
    }
    // A sparse file of 1 TB.
    fs::File::create(files.path("root/huge")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(texts(&source, "huge").await, Err(FetchError::TooLarge));
}

#[tokio::test]
async fn files_take_their_time() {
    let files = Files::new();
    files.write("d/a", &"x".repeat(60_000));
    let source = files.source();
    for at in [at("d/a"), at("d/")] {
        assert_paced(60_000, async |bounds| source.fetch(&at, None, bounds).await).await;
    }
}

#[tokio::test]
async fn a_tree_is_scanned_in_batches() {
    let files = Files::new();
    for n in 0..2500 {
        files.write(&format!("tree/many/{n:04}.md"), "x");
    }
    for path in ["tree/a.md", "tree/b.txt", "tree/deep/er/c.md", "tree/skipped/d.md", "other.md"] {
        files.write(path, path);
    }
    symlink("../other.md", files.path("root/tree/link.md")).unwrap();
    symlink("../../outside", files.path("root/tree/out.md")).unwrap();
    // A circle.
    symlink("..", files.path("root/tree/deep/up.md")).unwrap();
    let source = files.source();
    let tree = Tree { path: path("tree/").unwrap(), reference: None };
    let include =
        |path: &str| path.strip_suffix(".md").is_some() || (path.ends_with('/') && path != "skipped/");
    let batches: Vec<_> = source.scan(&tree, &include, None, None).map(Result::unwrap).collect().await;
    assert!(batches.iter().all(|batch| batch.len() <= 1000));
    let mut entries: Vec<_> = batches.into_iter().flatten().collect();
    entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    let (many, few): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| entry.path.starts_with("many/"));
    assert_eq!(many.len(), 2500);
    let found: Vec<_> = few.iter().map(|entry| (entry.path.as_str(), entry.size)).collect();
    assert_eq!(found, [("a.md", Some(9)), ("deep/er/c.md", Some(17)), ("link.md", Some(8))]);

    let before = few[0].validator.clone();
    files.write("tree/a.md", "tree/b.md");
    let again: Vec<_> =
        source.scan(&tree, &|path| path == "a.md", None, None).map(Result::unwrap).collect().await;
    assert_ne!(again[0][0].validator, before);

    let nowhere = Tree { path: path("nowhere/").unwrap(), reference: None };
    let scanned: Vec<_> = source.scan(&nowhere, &|_| true, None, None).collect().await;
    assert_eq!(scanned, [Err(FetchError::NotFound)]);
    let referred = Tree { path: Path::default(), reference: Some("main".into()) };
    let scanned: Vec<_> = source.scan(&referred, &|_| true, None, None).collect().await;
    assert_eq!(scanned, [Err(FetchError::NotAllowed)]);
}

#[test]
fn refused_settings_name_the_member() {
    let files = Files::new();
    fs::create_dir(files.path("root/keys")).unwrap();
    symlink("../outside", files.path("root/out")).unwrap();
    let roots = vec![files.path("root")];
    let context = context(roots, &files.path("root/keys/a"));
    fs::write(files.path("root/keys/a"), "secret").unwrap();
    let below = "settings.root must be a directory below one of `sources.file_roots`";
    let holds = "settings.root must hold neither keys nor data of this process, and not lead out of `sources.file_roots`";
    let root = |path: &str| json!({"root": files.path(path)});
    let cases = [
        (json!({}), json!({}), "settings is invalid: missing field `root`"),
        (
            json!({"root": "/", "path": ""}),
            json!({}),
            "settings has an unknown field `path`, expected `root`",
        ),
        (json!({"root": "/etc"}), json!({}), below),
        (json!({"root": "root"}), json!({}), below),
        (root("outside"), json!({}), below),
        (root("root/../outside"), json!({}), below),
        (root("rooted"), json!({}), below),
        (root("root"), json!({}), holds),
        (root("root/keys"), json!({}), holds),
        (root("root/keys/a"), json!({}), holds),
        (root("root/out"), json!({}), holds),
        (root("root/new"), json!({"password": "x"}), "secrets must be empty: a directory has none"),
    ];
    for (settings, secrets, expected) in cases {
        let refused = connect(Kind::File, &settings, secrets.as_object().unwrap(), &context);
        assert_eq!(refused.unwrap_err().to_string(), expected, "{settings}");
    }
    assert!(connect(Kind::File, &root("root/new"), &Map::new(), &context).is_ok());
    let none = self::context(Vec::new(), &files.path("data"));
    let refused = connect(Kind::File, &root("root"), &Map::new(), &none);
    assert_eq!(refused.unwrap_err().to_string(), below);
}

#[tokio::test]
async fn a_root_is_opened_at_each_fetch() {
    let files = Files::new();
    let source = source(&files.path("root/site"), &files.context());
    assert_eq!(texts(&source, "a").await, Err(FetchError::Unreachable));
    files.write("site/a", "1");
    assert_eq!(texts(&source, "a").await, Ok(vec![(None, "1".into())]));
    files.write("next/a", "2");
    fs::rename(files.path("root/site"), files.path("root/old")).unwrap();
    fs::rename(files.path("root/next"), files.path("root/site")).unwrap();
    assert_eq!(texts(&source, "a").await, Ok(vec![(None, "2".into())]));
    // It leads out of the roots from now on.
    fs::remove_dir_all(files.path("root/site")).unwrap();
    symlink("../outside", files.path("root/site")).unwrap();
    fs::write(files.path("outside/a"), "secret").unwrap();
    assert_eq!(texts(&source, "a").await, Err(FetchError::NotAllowed));
}
