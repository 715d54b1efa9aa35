//! An HTTP server of repositories: git's own, behind a small server.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// `user:pass` in base64.
const CREDENTIALS: &str = "Basic dXNlcjpwYXNz";

pub(super) struct Server {
    port: u16,
    paths: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(super) async fn start(root: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let paths = Arc::<Mutex<Vec<String>>>::default();
        let (root, seen) = (root.to_owned(), Arc::clone(&paths));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream, root.clone(), Arc::clone(&seen)));
            }
        });
        Self { port, paths, task }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// The paths that were asked for.
    pub(super) fn paths(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }
}

#[derive(Default)]
struct Request {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    async fn read(stream: &mut BufReader<TcpStream>) -> Self {
        let mut request = Self::default();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let mut words = line.split(' ');
        request.method = words.next().unwrap().to_owned();
        let target = words.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        (request.path, request.query) = (path.to_owned(), query.to_owned());
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let Some((name, value)) = line.trim().split_once(':') else { break };
            request.headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        if request.header("transfer-encoding") == "chunked" {
            loop {
                let mut size = String::new();
                stream.read_line(&mut size).await.unwrap();
                let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).unwrap() + 2];
                stream.read_exact(&mut chunk).await.unwrap();
                if chunk.len() == 2 {
                    break;
                }
                request.body.extend_from_slice(&chunk[..chunk.len() - 2]);
            }
        } else {
            request.body = vec![0; request.header("content-length").parse().unwrap_or(0)];
            stream.read_exact(&mut request.body).await.unwrap();
        }
        request
    }
}

async fn answer(stream: TcpStream, root: PathBuf, seen: Arc<Mutex<Vec<String>>>) {
    let mut stream = BufReader::new(stream);
    let request = Request::read(&mut stream).await;
    seen.lock().unwrap().push(request.path.clone());
    let head = |status: &str, more: &str| {
        format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n{more}\r\n")
    };
    let response = if let Some(path) = request.path.strip_prefix("/redirect/") {
        head("302 Found", &format!("location: /followed/{path}?{}\r\n", request.query)).into_bytes()
    } else if request.path.starts_with("/forbidden/") {
        head("403 Forbidden", "").into_bytes()
    } else if request.path.starts_with("/private/") && request.header("authorization") != CREDENTIALS {
        head("401 Unauthorized", "www-authenticate: Basic realm=\"x\"\r\n").into_bytes()
    } else {
        run(&request, &root).await
    };
    stream.write_all(&response).await.ok();
}

/// Runs git's own server as a program of the common gateway interface.
async fn run(request: &Request, root: &Path) -> Vec<u8> {
    let path = ["/private", "/again"].iter().find_map(|prefix| request.path.strip_prefix(prefix));
    let mut command = Command::new("git");
    command.arg("http-backend").env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    for (name, value) in [
        ("GIT_PROJECT_ROOT", root.to_str().unwrap()),
        ("GIT_HTTP_EXPORT_ALL", "1"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("PATH_INFO", path.unwrap_or(&request.path)),
        ("QUERY_STRING", &request.query),
        ("REQUEST_METHOD", &request.method),
        ("CONTENT_TYPE", request.header("content-type")),
        ("CONTENT_LENGTH", &request.body.len().to_string()),
        ("GIT_PROTOCOL", request.header("git-protocol")),
        ("HTTP_CONTENT_ENCODING", request.header("content-encoding")),
    ] {
        command.env(name, value);
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let body = request.body.clone();
    let writer = tokio::spawn(async move {
        stdin.write_all(&body).await.ok();
    });
    let output = child.wait_with_output().await.unwrap().stdout;
    writer.await.unwrap();
    let end = output.windows(4).position(|found| found == b"\r\n\r\n").unwrap();
    let headers = String::from_utf8_lossy(&output[..end]).into_owned();
    let status =
        headers.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK").to_owned();
    let body = &output[end + 4..];
    let mut response = format!(
        "HTTP/1.1 {status}\r\n{headers}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    response.extend_from_slice(body);
    response
}
