//! Updates of one clone that wait for each other, and scans of deep trees.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{join_all, select_all};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use super::*;

/// More fetches than the process has threads that block.
const FETCHES: usize = 8;

/// A server that can be made to hang.
struct Gate {
    url: String,
    hangs: Arc<AtomicBool>,
    /// Notified of each request that hangs.
    asked: Arc<Notify>,
}

impl Gate {
    /// Passes requests on to a server, or hangs from the start.
    async fn start(server: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/repo/.git", listener.local_addr().unwrap());
        let (hangs, asked) = (Arc::new(AtomicBool::new(server.is_none())), Arc::new(Notify::new()));
        let (hanging, asking) = (Arc::clone(&hangs), Arc::clone(&asked));
        tokio::spawn(async move {
            let mut hung = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                match server.filter(|_| !hanging.load(Ordering::Relaxed)) {
                    None => {
                        hung.push(stream);
                        asking.notify_one();
                    }
                    Some(server) => {
                        let mut passed = TcpStream::connect(server).await.unwrap();
                        tokio::spawn(async move { copy_bidirectional(&mut stream, &mut passed).await });
                    }
                }
            }
        });
        Self { url, hangs, asked }
    }

    fn connect(&self, site: &Site) -> Git {
        site.connect(&json!({"url": self.url, "allowNetworks": ["127.0.0.0/8"]}), &json!({})).unwrap()
    }
}

#[test]
fn fetches_that_wait_for_another_occupy_no_thread() {
    let runtime = Builder::new_multi_thread().worker_threads(1).max_blocking_threads(3).enable_all().build();
    let runtime = runtime.unwrap();
    let ended = runtime.block_on(async {
        let site = Site::new(1 << 30);
        let gate = Gate::start(None).await;
        let source = gate.connect(&site);
        let fetches = select_all((0..FETCHES).map(|_| Box::pin(text(&source, "README.md", None))));
        let others = async {
            gate.asked.notified().await;
            for _ in 0..100 {
                spawn_blocking(|| ()).await.unwrap();
            }
        };
        tokio::select! {
            (found, ..) = fetches => Some(found),
            () = others => None,
        }
    });
    // Without waiting for the fetch that is not answered.
    runtime.shutdown_background();
    assert_eq!(ended, None, "a fetch ended before other work had a thread");
}

#[test]
fn known_commit_is_read_while_another_reference_is_asked_for() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let read = runtime.block_on(async {
        let site = Site::new(1 << 30);
        let server = Server::start(site.folder.path()).await;
        let address = server.url("").trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        let gate = Gate::start(Some(address)).await;
        let source = gate.connect(&site);
        let since = Instant::now();
        assert_eq!(text(&source, "guides/intro.md", None).await, Ok("one".to_owned()));
        gate.hangs.store(true, Ordering::Relaxed);
        let other = text(&source, "guides/intro.md", Some("v1"));
        let known = async {
            gate.asked.notified().await;
            let bounds = Bounds { since: Some(since), ..BOUNDS };
            let location = location("README.md", None);
            join_all((0..FETCHES).map(|_| source.fetch(&location, None, bounds))).await
        };
        tokio::select! {
            _ = other => None,
            found = known => Some(found),
        }
    });
    runtime.shutdown_background();
    assert!(read.as_ref().is_some_and(|found| found.iter().all(Result::is_ok)), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_that_nest_too_deep_are_not_scanned() {
    let site = Site::new(0);
    let deep = site.repo().join("d/".repeat(70));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("no.md"), "too deep").unwrap();
    std::fs::write(site.repo().join("d/yes.md"), "listed").unwrap();
    site.commit("deep");
    let source = site.connect(&json!({"url": site.repo().to_str().unwrap()}), &json!({})).unwrap();
    assert_eq!(scan(&source, "d/").await, [("yes.md".to_owned(), Some(6))]);
}
