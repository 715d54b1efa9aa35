//! The source of object stores, against a server of the same protocol.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use futures_util::TryStreamExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::host::MultiDomain;
use s3s::service::S3ServiceBuilder;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::egress::Resolve;
use crate::pace::assert_paced;

const BOUNDS: Bounds<'_> = Bounds { bytes: 64 * 1024, entries: 10, since: None, pace: None };

/// A server of S3 that keeps objects in a folder.
struct Server {
    folder: tempfile::TempDir,
    port: u16,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single("key", "secret"));
        builder.set_host(MultiDomain::new([format!("s3.test:{port}"), format!("127.0.0.1:{port}")]).unwrap());
        let service = builder.build();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = service.clone();
                tokio::spawn(async move {
                    let server = Builder::new(TokioExecutor::new());
                    server.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        let server = Self { folder, port, task };
        for (name, text) in [
            ("read.md", "# Read me"),
            ("guides/intro.md", "one"),
            ("guides/b 1%.txt", "two"),
            ("guides/more/deep.md", "deep"),
            ("other/x.md", "x"),
        ] {
            server.write(name, text);
        }
        server
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join("bucket").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Settings of the bucket by the server's address.
    fn settings(&self) -> Value {
        json!({
            "endpoint": format!("http://127.0.0.1:{}", self.port),
            "bucket": "bucket",
            "pathStyle": true,
            "allowNetworks": ["127.0.0.0/8"],
        })
    }

    fn connect(&self, more: &Value) -> S3 {
        let mut settings = self.settings();
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        connect(&settings, &json!({"accessKeyId": "key", "secretAccessKey": "secret"})).unwrap()
    }
}

/// Resolves all names to loopback.
struct Loopback;

impl Resolve for Loopback {
    fn resolve<'a>(&'a self, _host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(std::future::ready(Ok(vec![Ipv4Addr::LOCALHOST.into()])))
    }
}

fn connect(settings: &Value, secrets: &Value) -> Result<S3, SettingsError> {
    let context = Arc::new(SourceContext {
        file_roots: Vec::new(),
        denied_paths: Vec::new(),
        cache_dir: "/nonexistent".into(),
        cache_bytes: 0,
        own_database: None,
        resolver: Arc::new(Loopback),
    });
    S3::new(settings, secrets.as_object().unwrap(), &context)
}

fn path(text: &str) -> Path {
    let segments = text.split('/').filter(|part| !part.is_empty()).map(|part| Segment::new(part).unwrap());
    Path { segments: segments.collect(), is_directory: text.is_empty() || text.ends_with('/') }
}

async fn fetch(source: &S3, text: &str, known: Option<&Validator>) -> Result<Fetched, FetchError> {
    let location = Location::Path { path: path(text), query: Vec::new(), reference: None };
    source.fetch(&location, known, BOUNDS).await
}

type Named = Vec<(Option<String>, String)>;

/// The names and texts at a path, and their validator.
async fn read(
    source: &S3,
    text: &str,
    known: Option<&Validator>,
) -> Result<Option<(Named, Validator)>, FetchError> {
    Ok(match fetch(source, text, known).await? {
        Fetched::Unchanged => None,
        Fetched::Contents { contents, validator } => {
            let named = |content: Content| (content.name, String::from_utf8(content.bytes.to_vec()).unwrap());
            Some((contents.into_iter().map(named).collect(), validator.unwrap()))
        }
    })
}

async fn text(source: &S3, at: &str) -> Result<String, FetchError> {
    let (mut contents, _) = read(source, at, None).await?.unwrap();
    assert_eq!(contents.len(), 1);
    Ok(contents.remove(0).1)
}

async fn scan(source: &S3, at: &str) -> Vec<(String, Option<u64>)> {
    let tree = Tree { path: path(at), reference: None };
    let include = |path: &str| (path.ends_with('/') && path != "other/") || path.ends_with("md");
    let batches: Vec<Vec<Entry>> = source.scan(&tree, &include, None, None).try_collect().await.unwrap();
    let mut found: Vec<_> = batches.into_iter().flatten().map(|entry| (entry.path, entry.size)).collect();
    found.sort();
    found
}

#[tokio::test]
async fn objects_and_directories_are_read_and_revalidated() {
    let server = Server::start().await;
    let source = server.connect(&json!({}));
    for (at, expected) in [
        ("read.md", Ok("# Read me")),
        ("guides/b 1%.txt", Ok("two")),
        ("none.md", Err(FetchError::NotFound)),
        ("none/", Err(FetchError::NotFound)),
    ] {
        assert_eq!(text(&source, at).await, expected.map(str::to_owned), "{at}");
    }
    let (contents, validator) = read(&source, "guides/intro.md", None).await.unwrap().unwrap();
    assert_eq!(contents, [(None, "one".to_owned())]);
    assert_eq!(read(&source, "guides/intro.md", Some(&validator)).await, Ok(None));
    let (directory, listed) = read(&source, "guides/", None).await.unwrap().unwrap();
    let named = |name: &str, text: &str| (Some(name.to_owned()), text.to_owned());
    assert_eq!(directory, [named("b 1%.txt", "two"), named("intro.md", "one")]);
    assert_eq!(read(&source, "guides/", Some(&listed)).await, Ok(None));

    server.write("guides/intro.md", "changed");
    let (contents, changed) = read(&source, "guides/intro.md", Some(&validator)).await.unwrap().unwrap();
    assert_eq!(contents, [(None, "changed".to_owned())]);
    assert_ne!(changed, validator);
    let (directory, _) = read(&source, "guides/", Some(&listed)).await.unwrap().unwrap();
    assert_eq!(directory, [named("b 1%.txt", "two"), named("intro.md", "changed")]);

    server.write("large", &"x".repeat(64 * 1024 + 1));
    assert_eq!(text(&source, "large").await, Err(FetchError::TooLarge));
    for number in 0..11 {
        server.write(&format!("many/{number}"), "");
    }
    assert_eq!(read(&source, "many/", None).await, Err(FetchError::TooLarge));
}

#[tokio::test]
async fn received_bytes_take_their_time() {
    let server = Server::start().await;
    server.write("some", &"x".repeat(60_000));
    server.write("few/a", "a");
    let source = server.connect(&json!({}));
    for (at, bytes) in [("some", 60_000), ("few/", 500)] {
        let location = Location::Path { path: path(at), query: Vec::new(), reference: None };
        assert_paced(bytes, async |bounds| source.fetch(&location, None, bounds).await).await;
    }
}

/// A bucket whose server answers each request with this status and an endless body.
async fn flooded(status: &'static str) -> (S3, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                stream.read_u8().await.ok();
                let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n");
                stream.write_all(head.as_bytes()).await.ok();
                let flood = b"<".repeat(64 * 1024);
                while stream.write_all(&flood).await.is_ok() {}
            });
        }
    });
    let settings = json!({
        "endpoint": format!("http://127.0.0.1:{port}"), "bucket": "bucket", "pathStyle": true,
        "allowNetworks": ["127.0.0.0/8"],
    });
    (connect(&settings, &json!({})).unwrap(), task)
}

#[tokio::test]
async fn status_says_whether_the_key_or_the_server_is_at_fault() {
    let failed = |retry_after| FetchError::Status { retry_after };
    for (status, expected) in [
        ("301 Moved Permanently", FetchError::Rejected),
        ("400 Bad Request", FetchError::Rejected),
        ("405 Method Not Allowed", FetchError::Rejected),
        ("409 Conflict", FetchError::Rejected),
        ("414 URI Too Long", FetchError::Rejected),
        ("401 Unauthorized", FetchError::Denied),
        ("403 Forbidden", FetchError::Denied),
        ("404 Not Found", FetchError::NotFound),
        ("408 Request Timeout", failed(None)),
        ("429 Too Many Requests\r\nretry-after: 7", FetchError::RateLimited { retry_after: Some(7) }),
        ("500 Internal Server Error", failed(None)),
        ("503 Slow Down", failed(None)),
    ] {
        let (source, task) = flooded(status).await;
        assert_eq!(fetch(&source, "read.md", None).await, Err(expected), "{status}");
        assert_eq!(fetch(&source, "", None).await, Err(expected), "{status}");
        task.abort();
    }
}

#[tokio::test]
async fn endless_lists_and_errors_are_not_collected() {
    let tree = Tree { path: path(""), reference: None };
    for answer in ["200 OK", "500 Internal Server Error", "404 Not Found"] {
        let (source, task) = flooded(answer).await;
        let ended = async {
            let listed: Vec<_> = source.scan(&tree, &|_| true, None, None).collect().await;
            (
                fetch(&source, "read.md", None).await.map(drop),
                fetch(&source, "", None).await.map(drop),
                listed,
            )
        };
        let (read, directory, listed) = timeout(Duration::from_mins(1), ended).await.unwrap();
        assert!(read.is_err() && directory.is_err() && listed.len() == 1 && listed[0].is_err(), "{answer}");
        if answer == "200 OK" {
            assert_eq!((directory, &listed[0]), (Err(FetchError::TooLarge), &Err(FetchError::TooLarge)));
        }
        task.abort();
    }
}

#[tokio::test]
async fn a_bucket_is_scanned_below_its_prefix() {
    let server = Server::start().await;
    let listed = |paths: &[(&str, u64)]| -> Vec<_> {
        paths.iter().map(|(path, size)| ((*path).to_owned(), Some(*size))).collect()
    };
    let source = server.connect(&json!({}));
    let all = [("guides/intro.md", 3), ("guides/more/deep.md", 4), ("read.md", 9)];
    assert_eq!(scan(&source, "").await, listed(&all));
    let below = server.connect(&json!({"prefix": "/guides/"}));
    assert_eq!(scan(&below, "").await, listed(&[("intro.md", 3), ("more/deep.md", 4)]));
    assert_eq!(scan(&below, "more/").await, listed(&[("deep.md", 4)]));
    assert_eq!(text(&below, "intro.md").await, Ok("one".to_owned()));
    assert_eq!(text(&below, "read.md").await, Err(FetchError::NotFound));
}

#[tokio::test]
async fn only_allowed_endpoints_are_connected_to_with_own_keys() {
    let server = Server::start().await;
    let keys = json!({"accessKeyId": "key", "secretAccessKey": "secret"});
    let at = |endpoint: &str, more: Value| {
        let mut settings = server.settings();
        settings["endpoint"] = json!(endpoint);
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        settings
    };
    let port = server.port;
    let none = json!({"allowNetworks": []});
    for (settings, secrets, expected) in [
        (server.settings(), &keys, Ok("one".to_owned())),
        // The bucket in the host.
        (at(&format!("http://s3.test:{port}"), json!({"pathStyle": false})), &keys, Ok("one".to_owned())),
        (server.settings(), &json!({}), Err(FetchError::Denied)),
        (server.settings(), &json!({"accessKeyId": "key", "secretAccessKey": "x"}), Err(FetchError::Denied)),
        (at(&format!("http://127.0.0.1:{port}"), none.clone()), &keys, Err(FetchError::NotAllowed)),
        (at(&format!("http://2130706433:{port}"), none.clone()), &keys, Err(FetchError::NotAllowed)),
        (at(&format!("http://[::ffff:7f00:1]:{port}"), none.clone()), &keys, Err(FetchError::NotAllowed)),
        (at(&format!("http://s3.test:{port}"), none.clone()), &keys, Err(FetchError::NotAllowed)),
        (at("http://169.254.169.254", none), &keys, Err(FetchError::NotAllowed)),
        (at("http://127.0.0.1:1", json!({})), &keys, Err(FetchError::Unreachable)),
    ] {
        let source = connect(&settings, secrets).unwrap();
        assert_eq!(text(&source, "guides/intro.md").await, expected, "{settings} {secrets}");
    }
}

#[test]
fn settings_that_are_refused_name_their_member() {
    for (settings, secrets, expected) in [
        (json!({}), json!({}), "settings is invalid: missing field `bucket`"),
        (json!({"bucket": "a/b"}), json!({}), "settings.bucket must be the name of a bucket"),
        (
            json!({"bucket": "bucket", "endpoint": "https://u:p@example.com"}),
            json!({}),
            "settings.endpoint must not have a user or a password: keys belong into `secrets`",
        ),
        (
            json!({"bucket": "bucket", "endpoint": "ftp://example.com"}),
            json!({}),
            "settings.endpoint must begin with http:// or https://",
        ),
        (
            json!({"bucket": "bucket", "prefix": "a/../b"}),
            json!({}),
            "settings.prefix must be a path without empty segments, `.` and `..`",
        ),
        (
            json!({"bucket": "bucket", "region": "a.b"}),
            json!({}),
            "settings.region must be the name of a region",
        ),
        (json!({"bucket": "bucket"}), json!({"accessKeyId": "a"}), "secrets must have both keys, or none"),
        (
            json!({"bucket": "bucket"}),
            json!({"token": "a"}),
            "secrets must be an object with `accessKeyId` and `secretAccessKey`, texts",
        ),
    ] {
        assert_eq!(connect(&settings, &secrets).unwrap_err().to_string(), expected, "{settings}");
    }
}

#[test]
fn type_of_objects_without_one_is_not_stated() {
    let types = ["text/markdown", "application/octet-stream", "binary/octet-stream"].map(stated);
    assert_eq!(types, [Some("text/markdown".to_owned()), Some("application/octet-stream".to_owned()), None]);
}
