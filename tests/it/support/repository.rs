//! Git repositories, and an HTTP server of them: git's own program behind a router.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// The most bytes of a request.
const MAX_BYTES: usize = 1 << 20;

/// Runs git in a directory, without configuration of the host.
pub(crate) fn git(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(directory).args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    let set = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    command.envs(set.map(|name| (name, "a@example.com")));
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let done = command.output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Serves the repositories in a folder over HTTP until the test ends; returns the URL of the folder, with a `/` at its end.
pub(crate) async fn serve_repositories(folder: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(folder.to_owned());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// Answers by `git http-backend`, a program of the common gateway interface.
async fn answer(State(folder): State<PathBuf>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, MAX_BYTES).await.unwrap();
    let header = |name: &str| head.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let mut backend = tokio::process::Command::new("git");
    backend.arg("http-backend").env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    backend.envs([
        ("GIT_PROJECT_ROOT", folder.display().to_string()),
        ("GIT_HTTP_EXPORT_ALL", "1".to_owned()),
        ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("PATH_INFO", head.uri.path().to_owned()),
        ("QUERY_STRING", head.uri.query().unwrap_or_default().to_owned()),
        ("REQUEST_METHOD", head.method.to_string()),
        ("CONTENT_TYPE", header("content-type")),
        ("CONTENT_LENGTH", body.len().to_string()),
        ("GIT_PROTOCOL", header("git-protocol")),
        ("HTTP_CONTENT_ENCODING", header("content-encoding")),
    ]);
    backend.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut backend = backend.spawn().unwrap();
    let mut stdin = backend.stdin.take().unwrap();
    let write = async move { stdin.write_all(&body).await.ok() };
    let (_, output) = tokio::join!(write, backend.wait_with_output());
    let output = output.unwrap().stdout;
    let end = output.windows(4).position(|found| found == b"\r\n\r\n").unwrap();
    let mut response = Response::builder();
    for line in std::str::from_utf8(&output[..end]).unwrap().lines() {
        let (name, value) = line.split_once(": ").unwrap();
        response = match name {
            "Status" => response.status(value[..3].parse::<u16>().unwrap()),
            _ => response.header(name, value),
        };
    }
    response.body(Body::from(output[end + 4..].to_vec())).unwrap()
}
