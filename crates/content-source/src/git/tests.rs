//! The source of repositories, against a real HTTP back end and in place.

mod answers;
mod server;
mod updates;

use std::path::Path as FilePath;
use std::process::Command;

use futures_util::TryStreamExt;
use serde_json::json;

use self::server::Server;
use super::*;
use crate::egress::SystemResolver;
use crate::location::{Path, Segment};
use crate::pace::assert_paced;
use crate::source::Content;

const BOUNDS: Bounds<'_> = Bounds { bytes: 64 * 1024, entries: 10, since: None, pace: None };

/// Runs git in a directory, with no configuration of the host.
fn git(directory: &FilePath, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(directory).args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@example.com"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@example.com"),
    ] {
        command.env(name, value);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A repository with a working tree, and what a process allows that has its parent as root of files.
struct Site {
    folder: tempfile::TempDir,
    context: Arc<SourceContext>,
}

impl Site {
    fn new(cache_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let repo = folder.path().join("repo");
        std::fs::create_dir_all(repo.join("guides/more")).unwrap();
        git(&repo, &["init", "-q", "-b", "main"]);
        std::fs::write(repo.join("README.md"), "# Read me\n").unwrap();
        std::fs::write(repo.join("guides/intro.md"), "one").unwrap();
        std::fs::write(repo.join("guides/b.bin"), b"\0\xff\r\n").unwrap();
        std::fs::write(repo.join("guides/more/deep.md"), "deep").unwrap();
        std::fs::write(repo.join(".gitattributes"), "*.md filter=evil ident\n").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", repo.join("guides/link.md")).unwrap();
        let site = Self {
            context: Arc::new(SourceContext {
                file_roots: vec![folder.path().to_owned()],
                denied_paths: vec![folder.path().join("denied")],
                cache_dir: folder.path().join("cache"),
                cache_bytes,
                own_database: None,
                resolver: Arc::new(SystemResolver::default()),
            }),
            folder,
        };
        site.commit("first");
        git(&site.repo(), &["tag", "-a", "v1", "-m", "one"]);
        site
    }

    fn repo(&self) -> std::path::PathBuf {
        self.folder.path().join("repo")
    }

    fn commit(&self, message: &str) -> String {
        git(&self.repo(), &["add", "-A"]);
        git(&self.repo(), &["commit", "-q", "-m", message]);
        git(&self.repo(), &["rev-parse", "HEAD"])
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.repo().join(name), text).unwrap();
        self.commit(name)
    }

    fn connect(&self, settings: &Value, secrets: &Value) -> Result<Git, SettingsError> {
        Git::new(settings, secrets.as_object().unwrap(), &self.context)
    }
}

fn path(text: &str) -> Path {
    let segments = text.split('/').filter(|part| !part.is_empty()).map(|part| Segment::new(part).unwrap());
    Path { segments: segments.collect(), is_directory: text.is_empty() || text.ends_with('/') }
}

fn location(text: &str, reference: Option<&str>) -> Location {
    Location::Path { path: path(text), query: Vec::new(), reference: reference.map(str::to_owned) }
}

type Named = Vec<(Option<String>, Vec<u8>)>;

/// The names and bytes at a path, and their validator.
async fn read(
    source: &Git,
    text: &str,
    reference: Option<&str>,
    known: Option<&Validator>,
) -> Result<Option<(Named, Validator)>, FetchError> {
    Ok(match source.fetch(&location(text, reference), known, BOUNDS).await? {
        Fetched::Unchanged => None,
        Fetched::Contents { contents, validator } => {
            let named = |Content { name, bytes, mime_type, modified }: Content| {
                assert_eq!((mime_type, modified), (None, None));
                (name, bytes.to_vec())
            };
            Some((contents.into_iter().map(named).collect(), validator.unwrap()))
        }
    })
}

/// The text of a file, or why there is none.
async fn text(source: &Git, at: &str, reference: Option<&str>) -> Result<String, FetchError> {
    let (mut contents, _) = read(source, at, reference, None).await?.unwrap();
    assert_eq!(contents.len(), 1);
    Ok(String::from_utf8(contents.remove(0).1).unwrap())
}

async fn scan(source: &Git, at: &str) -> Vec<(String, Option<u64>)> {
    let tree = Tree { path: path(at), reference: None };
    let include = |path: &str| path.ends_with('/') || path.ends_with("md");
    let batches: Vec<Vec<Entry>> = source.scan(&tree, &include, None, None).try_collect().await.unwrap();
    let mut found: Vec<_> = batches.into_iter().flatten().map(|entry| (entry.path, entry.size)).collect();
    found.sort();
    found
}

/// What both ways to open a repository have in common.
async fn reads_and_follows(site: &Site, source: &Git) {
    let first = git(&site.repo(), &["rev-parse", "HEAD"]);
    for (at, reference, expected) in [
        ("README.md", None, Ok("# Read me\n")),
        ("guides/more/deep.md", None, Ok("deep")),
        ("README.md", Some("main"), Ok("# Read me\n")),
        ("README.md", Some("v1"), Ok("# Read me\n")),
        ("README.md", Some("refs/heads/main"), Ok("# Read me\n")),
        ("README.md", Some(first.as_str()), Ok("# Read me\n")),
        ("README.md", Some("none"), Err(FetchError::NotFound)),
        ("README.md", Some("main~1"), Err(FetchError::NotFound)),
        ("README.md", Some("+main:x"), Err(FetchError::NotFound)),
        ("README.md", Some("*"), Err(FetchError::NotFound)),
        ("README.md", Some("--upload-pack=id"), Err(FetchError::NotFound)),
        ("readme.md", None, Err(FetchError::NotFound)),
        ("README.md/", None, Err(FetchError::NotFound)),
        ("README.md/x", None, Err(FetchError::NotFound)),
        ("guides", None, Err(FetchError::NotFound)),
        ("guides/link.md", None, Err(FetchError::NotFound)),
        (".git/config", None, Err(FetchError::NotFound)),
    ] {
        assert_eq!(text(source, at, reference).await, expected.map(str::to_owned), "{at} {reference:?}");
    }
    let (directory, _) = read(source, "guides/", None, None).await.unwrap().unwrap();
    let named = |name: &str, bytes: &[u8]| (Some(name.to_owned()), bytes.to_vec());
    assert_eq!(directory, [named("b.bin", b"\0\xff\r\n"), named("intro.md", b"one")]);
    let listed = |paths: &[(&str, u64)]| -> Vec<_> {
        paths.iter().map(|(path, size)| ((*path).to_owned(), Some(*size))).collect()
    };
    assert_eq!(
        scan(source, "").await,
        listed(&[("README.md", 10), ("guides/intro.md", 3), ("guides/more/deep.md", 4)])
    );
    assert_eq!(scan(source, "guides/").await, listed(&[("intro.md", 3), ("more/deep.md", 4)]));

    let (_, validator) = read(source, "guides/intro.md", None, None).await.unwrap().unwrap();
    assert_eq!(read(source, "guides/intro.md", None, Some(&validator)).await, Ok(None));
    // Another file changes, then this one.
    site.write("README.md", "# Other\n");
    assert_eq!(read(source, "guides/intro.md", None, Some(&validator)).await, Ok(None));
    assert_eq!(text(source, "README.md", None).await, Ok("# Other\n".to_owned()));
    site.write("guides/intro.md", "two");
    let (found, changed) = read(source, "guides/intro.md", None, Some(&validator)).await.unwrap().unwrap();
    assert_eq!(found, [(None, b"two".to_vec())]);
    assert_ne!(changed, validator);
    assert_eq!(text(source, "guides/intro.md", Some("v1")).await, Ok("one".to_owned()));

    site.write("large.txt", &"x".repeat(64 * 1024 + 1));
    assert_eq!(text(source, "large.txt", None).await, Err(FetchError::TooLarge));
    for number in 0..11 {
        std::fs::write(site.repo().join(format!("guides/more/{number}")), "").unwrap();
    }
    site.commit("many");
    assert_eq!(read(source, "guides/more/", None, None).await, Err(FetchError::TooLarge));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_read_in_place() {
    let site = Site::new(0);
    let url = json!({"url": site.repo().to_str().unwrap()});
    reads_and_follows(&site, &site.connect(&url, &json!({})).unwrap()).await;
    git(site.folder.path(), &["clone", "-q", "--bare", "repo", "bare.git"]);
    let url = format!("file://{}/bare.git", site.folder.path().display());
    let bare = site.connect(&json!({"url": url, "ref": "v1"}), &json!({})).unwrap();
    assert_eq!(text(&bare, "guides/intro.md", None).await, Ok("one".to_owned()));
    assert!(bare.watch(&Tree { path: path(""), reference: None }).is_none());
}

/// It is the connection that does not work, and not the file that does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_repository_in_place_is_a_failure_of_the_source() {
    let site = Site::new(0);
    let source = site.connect(&json!({"url": site.repo().to_str().unwrap()}), &json!({})).unwrap();
    let (head, config) = (site.repo().join(".git/HEAD"), site.repo().join(".git/config"));
    for file in [&head, &config] {
        let intact = std::fs::read(file).unwrap();
        std::fs::write(file, "[garbage\n").unwrap();
        assert_eq!(text(&source, "README.md", None).await, Err(FetchError::BadContent), "{file:?}");
        std::fs::write(file, intact).unwrap();
        assert!(text(&source, "README.md", None).await.is_ok());
    }
    for part in [site.repo(), site.repo().join(".git"), site.repo().join(".git/objects"), head] {
        let away = site.folder.path().join("away");
        std::fs::rename(&part, &away).unwrap();
        let failed = text(&source, "README.md", None).await;
        assert!(
            matches!(failed, Err(FetchError::Unreachable | FetchError::BadContent)),
            "{part:?} {failed:?}"
        );
        std::fs::rename(&away, &part).unwrap();
        assert!(text(&source, "README.md", None).await.is_ok());
    }
    let (objects, away) = (site.repo().join(".git/objects"), site.folder.path().join("away"));
    std::fs::rename(&objects, &away).unwrap();
    std::fs::create_dir(&objects).unwrap();
    assert_eq!(text(&source, "README.md", None).await, Err(FetchError::BadContent));
    std::fs::remove_dir(&objects).unwrap();
    std::fs::rename(&away, &objects).unwrap();
    git(&site.repo(), &["symbolic-ref", "HEAD", "refs/heads/unborn"]);
    assert_eq!(text(&source, "README.md", None).await, Err(FetchError::NotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_in_place_does_not_lead_out_of_the_roots() {
    let site = Site::new(0);
    let outside = tempfile::tempdir().unwrap();
    let root = site.folder.path();
    let target = outside.path().to_str().unwrap();
    git(outside.path(), &["clone", "-q", "--bare", site.repo().to_str().unwrap(), "out.git"]);
    std::os::unix::fs::symlink(outside.path().join("out.git"), root.join("link.git")).unwrap();
    std::fs::create_dir(root.join("pointer")).unwrap();
    std::fs::write(root.join("pointer/.git"), format!("gitdir: {target}/out.git\n")).unwrap();
    git(root, &["clone", "-q", "--bare", "--shared", "repo", "shared.git"]);
    git(root, &["clone", "-q", "--bare", "repo", "linked.git"]);
    std::fs::remove_dir_all(root.join("linked.git/objects")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("out.git/objects"), root.join("linked.git/objects"))
        .unwrap();
    git(root, &["clone", "-q", "--bare", "repo", "denied"]);
    for (name, expected) in [
        ("repo", Ok("one".to_owned())),
        ("link.git", Err(FetchError::NotAllowed)),
        ("pointer", Err(FetchError::Unreachable)),
        ("shared.git", Err(FetchError::NotAllowed)),
        ("linked.git", Err(FetchError::NotAllowed)),
        ("denied", Err(FetchError::NotAllowed)),
        ("none.git", Err(FetchError::Unreachable)),
        ("repo/guides", Err(FetchError::Unreachable)),
    ] {
        let source = site.connect(&json!({"url": root.join(name).to_str().unwrap()}), &json!({})).unwrap();
        assert_eq!(text(&source, "guides/intro.md", None).await, expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_cloned_over_http() {
    let site = Site::new(64 * 1024 * 1024);
    let server = Server::start(site.folder.path()).await;
    let settings = json!({"url": server.url("repo/.git"), "allowNetworks": ["127.0.0.1"]});
    reads_and_follows(&site, &site.connect(&settings, &json!({})).unwrap()).await;
    // Nothing is left of what was received but the clone.
    let mut names: Vec<_> =
        site.context.cache_dir.read_dir().unwrap().flatten().map(|entry| entry.path()).collect();
    names.sort();
    let extensions: Vec<_> = names.iter().map(|name| name.extension().unwrap().to_str().unwrap()).collect();
    assert_eq!(extensions, ["git", "lock"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_allowed_is_cloned() {
    let site = Site::new(64 * 1024 * 1024);
    let server = Server::start(site.folder.path()).await;
    let here = json!(["127.0.0.0/8"]);
    let secrets = json!({"username": "user", "password": "pass"});
    let elsewhere = server.url("repo/.git").replace("127.0.0.1", "2130706433");
    let one = || Ok("one".to_owned());
    for (settings, secrets, expected) in [
        (json!({"url": server.url("repo/.git")}), json!({}), Err(FetchError::NotAllowed)),
        (json!({"url": elsewhere}), json!({}), Err(FetchError::NotAllowed)),
        (json!({"url": "http://8.8.8.8/a.git"}), secrets.clone(), Err(FetchError::NotAllowed)),
        (json!({"url": elsewhere, "allowNetworks": here}), json!({}), one()),
        (
            json!({"url": server.url("none/.git"), "allowNetworks": here}),
            json!({}),
            Err(FetchError::NotFound),
        ),
        (
            json!({"url": server.url("redirect/repo/.git"), "allowNetworks": here}),
            json!({}),
            Err(FetchError::Unreachable),
        ),
        (
            json!({"url": server.url("private/repo/.git"), "allowNetworks": here}),
            json!({}),
            Err(FetchError::Denied),
        ),
        (json!({"url": server.url("private/repo/.git"), "allowNetworks": here}), secrets, one()),
        (
            json!({"url": server.url("private/repo/.git"), "allowNetworks": here}),
            json!({"username": "user", "password": "other"}),
            Err(FetchError::Denied),
        ),
        (
            json!({"url": server.url("forbidden/repo/.git"), "allowNetworks": here}),
            json!({}),
            Err(FetchError::Denied),
        ),
    ] {
        let source = site.connect(&settings, &secrets).unwrap();
        assert_eq!(text(&source, "guides/intro.md", None).await, expected, "{settings}");
    }
    assert!(!server.paths().iter().any(|path| path.contains("followed")), "{:?}", server.paths());
}

/// Bytes that cannot be compressed.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn clones_stay_within_their_budget() {
    let site = Site::new(300_000);
    let server = Server::start(site.folder.path()).await;
    std::fs::write(site.repo().join("noise"), noise(200_000)).unwrap();
    site.commit("noise");
    let connect = |path: &str| {
        let settings = json!({"url": server.url(path), "allowNetworks": ["127.0.0.1"]});
        site.connect(&settings, &json!({})).unwrap()
    };
    let clones = || {
        let entries = site.context.cache_dir.read_dir().unwrap().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "git")).count()
    };
    // A clone that is used stays until a later fetch. A process that another test is starting uses all: it has the locks
    // of this one until it runs its program.
    let fetched = async |path: &str, expected: Result<String, FetchError>, left: usize| {
        for _ in 0..100 {
            assert_eq!(text(&connect(path), "guides/intro.md", None).await, expected, "{path}");
            if clones() == left {
                return;
            }
        }
        panic!("{path}: {} clones instead of {left}", clones());
    };
    // The second goes in place of the first.
    for path in ["repo/.git", "again/repo/.git", "repo/.git"] {
        fetched(path, Ok("one".to_owned()), 1).await;
    }
    std::fs::write(site.repo().join("noise"), noise(400_000)).unwrap();
    site.commit("more noise");
    // What is over the budget does not stay, whether it was received to its end or not.
    fetched("repo/.git", Err(FetchError::TooLarge), 0).await;
}

#[tokio::test]
async fn packs_and_files_take_their_time() {
    let site = Site::new(1 << 30);
    let server = Server::start(site.folder.path()).await;
    std::fs::write(site.repo().join("noise"), noise(60_000)).unwrap();
    site.commit("noise");
    let remote = json!({"url": server.url("repo/.git"), "allowNetworks": ["127.0.0.0/8"]});
    let local = json!({"url": site.repo().to_str().unwrap()});
    // The small file of a large pack; the large file of a repository in place.
    for (settings, at) in [(remote, "README.md"), (local, "noise")] {
        let source = site.connect(&settings, &json!({})).unwrap();
        assert_paced(60_000, async |bounds| source.fetch(&location(at, None), None, bounds).await).await;
    }
}

#[test]
fn settings_that_are_refused_name_their_member() {
    let site = Site::new(0);
    for (settings, secrets, expected) in [
        (json!({}), json!({}), "settings is invalid: missing field `url`"),
        (
            json!({"url": "https://user:pass@example.com/a.git"}),
            json!({}),
            "settings.url must not have a password: it belongs into `secrets`",
        ),
        (
            json!({"url": "https://example.com/a.git?x"}),
            json!({}),
            "settings.url must not have a query or a fragment",
        ),
        (
            json!({"url": "https://example.com/a.git", "ref": "a..b"}),
            json!({}),
            "settings.ref must be the name of a branch or tag, or a commit",
        ),
        (
            json!({"url": "https://example.com/a.git"}),
            json!({"token": "x"}),
            "secrets must be an object with `username` and `password`, texts",
        ),
        (
            json!({"url": site.repo().to_str().unwrap()}),
            json!({"password": "x"}),
            "secrets is not for a repository that is opened in place",
        ),
    ] {
        assert_eq!(site.connect(&settings, &secrets).unwrap_err().to_string(), expected, "{settings}");
    }
    for url in [
        "ssh://git@example.com/a.git",
        "git@example.com:a.git",
        "ext::sh -c id",
        "git://example.com/a",
        "/etc",
        "a.git",
        "file:///etc/a.git",
    ] {
        let expected = "settings.url must be an HTTP URL, or a repository below one of `sources.file_roots`";
        assert_eq!(
            site.connect(&json!({"url": url}), &json!({})).unwrap_err().to_string(),
            expected,
            "{url}"
        );
    }
}
