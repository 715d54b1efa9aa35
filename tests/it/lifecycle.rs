//! The gateway as a process: start, readiness, shutdown, and its operator key.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::pty::{OpenptyResult, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sqlx::{ConnectOptions, Executor};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::spawn_blocking;
use waggle::model::key::{KeyKind, SecretKey};

use crate::support::app::{Builder, resource};
use crate::support::cluster::database;
use crate::support::folder::{children, signal_all};
use crate::support::http::CONTINUE;
use crate::support::process::{Site, free_address, ready_again};
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

#[tokio::test]
async fn nothing_of_a_gateway_outlives_its_runtime() {
    let database = database().await;
    let dropped = spawn_blocking(move || {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let replica = Builder::new(&database).start().await;
            Arc::downgrade(&replica.running.services.catalog)
        })
    });
    let catalog = dropped.await.unwrap();
    eventually("no thread holds the catalog", async || catalog.upgrade().is_none()).await;
}

#[tokio::test]
async fn second_gateway_on_the_data_directory_is_refused_as_logged() {
    let site = Site::new();
    let first = site.serve().await;
    let sentence = format!(
        "the data directory {} is in use by another process (process {}); stop that gateway, or choose another data \
         directory with --data-dir",
        site.folder.data_dir().canonicalize().unwrap().display(),
        first.pid()
    );
    for format in ["text", "json"] {
        let second = site.command("serve").args(["--log-format", format]).output().await.unwrap();
        assert_eq!((second.status.code(), second.stdout), (Some(1), Vec::new()));
        let printed = String::from_utf8(second.stderr).unwrap();
        let last = printed.lines().last().unwrap();
        if format == "text" {
            assert_eq!(last, sentence);
        } else {
            let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let last = lines.last().unwrap();
            assert_eq!((&last["level"], &last["error"]), (&json!("ERROR"), &json!(sentence)), "{printed}");
        }
    }
    assert!(site.is_ready().await, "the first one is unaffected");
    assert_eq!(first.stop().await.code(), Some(0));
}

/// A request to write a resource whose body the gateway reads, without the end of the body.
struct HalfSent {
    connection: TcpStream,
    rest: Vec<u8>,
}

impl HalfSent {
    async fn to(site: &Site, agent: &str) -> Self {
        let body = json!({"name": "late", "contents": [{"text": "written while stopping"}]}).to_string();
        let head = format!(
            "PUT /admin/v1/agents/{agent}/resources?uri=x:late HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
            site.address,
            site.operator(),
            body.len()
        );
        let mut connection = TcpStream::connect(site.address).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut go_on = [0; CONTINUE.len()];
        connection.read_exact(&mut go_on).await.unwrap();
        assert_eq!(std::str::from_utf8(&go_on), Ok(CONTINUE));
        let (sent, rest) = body.as_bytes().split_at(body.len() - 10);
        connection.write_all(sent).await.unwrap();
        Self { connection, rest: rest.to_vec() }
    }

    async fn finish(mut self) -> String {
        self.connection.write_all(&self.rest).await.unwrap();
        let mut answer = String::new();
        self.connection.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

/// Waits until the site's address refuses connections.
async fn closed(site: &Site) {
    eventually("connections are refused", async || TcpStream::connect(site.address).await.is_err()).await;
}

#[tokio::test]
async fn terminated_gateway_finishes_requests_in_flight() {
    let site = Site::new();
    let gateway = site.serve().await;
    let owner = site.tenant("acme", ["a".to_owned()]).await;
    let under_way = HalfSent::to(&site, "a").await;
    let mut idle = TcpStream::connect(site.address).await.unwrap();
    // Connections are accepted in order: a later one has been served.
    assert!(site.is_ready().await);
    gateway.terminate();
    closed(&site).await;
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0, "a connection without a request is closed");
    let answer = under_way.finish().await;
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    assert_eq!(gateway.ended().await.code(), Some(0));
    assert_eq!(site.folder.postmaster(), None, "the database ended in order");

    let again = site.serve().await;
    let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:late"}});
    let answer = site.http.post_bearer("a", &owner, &read).await.json();
    assert_eq!(answer["result"]["contents"], json!([{"uri": "x:late", "text": "written while stopping"}]));
    assert_eq!(again.stop().await.code(), Some(0));
}

#[tokio::test]
async fn drain_ends_after_its_seconds() {
    const DRAIN: Duration = Duration::from_secs(1);
    for (subcommand, output, started) in [("serve", "stderr", "serving"), ("demo", "stdout", "tools/call")] {
        let site = Site::new().set("WAGGLE_SERVER__DRAIN_SECONDS", DRAIN.as_secs());
        let gateway = site.start(subcommand).await;
        eventually("it has started", async || site.printed(output).contains(started)).await;
        let signalled = Instant::now();
        gateway.terminate();
        closed(&site).await;
        assert!(signalled.elapsed() >= DRAIN, "{subcommand} {:?}", signalled.elapsed());
        // Without a second signal.
        assert_eq!(gateway.ended().await.code(), Some(0));
    }
}

#[tokio::test]
async fn unfinished_request_does_not_delay_shutdown_forever() {
    let site = Site::new().set("WAGGLE_SERVER__SHUTDOWN_SECONDS", 1);
    let gateway = site.serve().await;
    site.tenant("acme", ["a".to_owned()]).await;
    let under_way = HalfSent::to(&site, "a").await;
    let signalled = Instant::now();
    assert_eq!(gateway.stop().await.code(), Some(0));
    let took = signalled.elapsed();
    println!("ended {took:?} after SIGTERM, with a request that never ends");
    assert!(took >= Duration::from_secs(1), "the request was waited for");
    assert!(took < Duration::from_secs(10), "{took:?}");
    drop(under_way);
}

#[tokio::test]
async fn unresponsive_database_does_not_delay_shutdown_forever() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let operator = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
    let site = Site::new()
        .set("DATABASE_URL", proxy.options.to_url_lossy())
        .set("WAGGLE_ADMIN__OPERATOR_KEY", operator.reveal())
        .set("WAGGLE_SERVER__SHUTDOWN_SECONDS", 1);
    let gateway = site.serve().await;
    proxy.swallow(true);
    let (http, bearer) = (site.http.clone(), format!("Bearer {}", operator.reveal()));
    let waiting = tokio::spawn(async move {
        // Whether it is answered before the shutdown does not matter here.
        http.try_send("GET", "/admin/v1/agents/a", &[("authorization", &bearer)], "").await.ok()
    });
    // Not for a condition: the request reaches the gateway during this time and waits for the database, which cannot be
    // observed.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let signalled = Instant::now();
    assert_eq!(gateway.stop().await.code(), Some(0));
    println!("ended {:?} after SIGTERM, with a database that does not answer", signalled.elapsed());
    assert!(signalled.elapsed() < Duration::from_secs(10), "{:?}", signalled.elapsed());
    waiting.abort();
}

#[tokio::test]
async fn gateway_starts_when_a_silent_database_answers() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let operator = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
    let site = Site::new()
        .set("DATABASE_URL", proxy.options.to_url_lossy())
        .set("WAGGLE_ADMIN__OPERATOR_KEY", operator.reveal());
    proxy.swallow(true);
    let exchange = async {
        // Not for a condition: what was sent before is never answered.
        tokio::time::sleep(Duration::from_secs(1)).await;
        proxy.swallow(false);
    };
    let (gateway, ()) = tokio::join!(site.serve(), exchange);
    assert_eq!(gateway.stop().await.code(), Some(0));
}

#[tokio::test]
async fn gateway_waiting_for_its_database_terminates_at_once() {
    for (subcommand, code) in [("serve", 0), ("migrate", 1)] {
        let operator = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
        let site = Site::new()
            .set("DATABASE_URL", format!("postgres://waggle@{}/waggle", free_address()))
            .set("WAGGLE_ADMIN__OPERATOR_KEY", operator.reveal());
        let mut child = site.command(subcommand).stderr(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(child.stderr.take().unwrap()).lines();
        while !printed.next_line().await.unwrap().unwrap().contains("database unreachable") {}
        if subcommand == "serve" {
            let starting = "the gateway is starting; try again";
            let metrics = site.http.get("/metrics").await.json();
            assert_eq!((&metrics["code"], &metrics["detail"]), (&json!("unavailable"), &json!(starting)));
            let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
            let refused = site.http.send("POST", "/a/mcp", &[], ping).await.json();
            assert_eq!(refused["error"]["message"], starting);
        }
        let signalled = Instant::now();
        kill(Pid::from_raw(child.id().unwrap().try_into().unwrap()), Signal::SIGTERM).unwrap();
        // A process that does not handle the signal is terminated by it, without an exit code; in a container it ignores
        // it.
        assert_eq!(child.wait().await.unwrap().code(), Some(code), "{subcommand}");
        assert!(signalled.elapsed() < Duration::from_secs(5), "{:?}", signalled.elapsed());
    }
}

#[tokio::test]
async fn operator_key_is_created_once_privately_and_never_logged() {
    // At `trace`, dependencies log headers and statements.
    let site = Site::new().set("WAGGLE_LOG__FILTER", "trace");
    let gateway = site.serve().await;
    let key = site.operator();
    let made = fs::metadata(site.operator_file()).unwrap();
    assert_eq!(made.permissions().mode() & 0o7777, 0o600);
    assert!(key.starts_with("wag_") && key.len() == 53);
    let owner = site.tenant("acme", ["a".to_owned()]).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    assert_eq!(site.http.post_bearer("a", &owner, &list).await.json()["result"], json!({"resources": []}));
    assert_eq!(gateway.stop().await.code(), Some(0));

    let again = site.serve().await;
    assert_eq!(site.operator(), key, "the key of the first start");
    assert_eq!(fs::metadata(site.operator_file()).unwrap().mtime_nsec(), made.mtime_nsec());
    assert_eq!(site.admin("GET", "/tenants/acme", None).await.status, http::StatusCode::OK);
    assert_eq!(again.stop().await.code(), Some(0));

    assert_eq!(site.printed("stdout"), "");
    assert!(site.printed("stderr").contains("listen connection established"), "something is logged");
    assert_eq!(files_with(site.folder.root.path(), &key), ["operator.key"]);
    assert_eq!(files_with(site.folder.root.path(), &owner), [""; 0]);
}

#[tokio::test]
async fn operator_key_is_printed_on_a_terminal_at_the_first_start_only() {
    let site = Site::new();
    let mut printed = Vec::new();
    for _ in 0..2 {
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let mut gateway = site.command("serve").stderr(Stdio::from(slave)).spawn().unwrap();
        // Read at once, since a full terminal delays what is logged. It fails when the process has ended.
        let reading = spawn_blocking(move || {
            let mut bytes = Vec::new();
            let _ = File::from(master).read_to_end(&mut bytes);
            String::from_utf8(bytes).unwrap()
        });
        ready_again(&site).await;
        kill(Pid::from_raw(gateway.id().unwrap().try_into().unwrap()), Signal::SIGTERM).unwrap();
        assert_eq!(gateway.wait().await.unwrap().code(), Some(0));
        printed.push(reading.await.unwrap());
    }
    let (file, key) = (site.operator_file(), site.operator());
    let line = format!("operator key (shown once, kept in {}): {key}\r\n", file.display());
    assert_eq!(
        (printed[0].matches(&line).count(), printed[0].matches(&key).count()),
        (1, 1),
        "{}",
        printed[0]
    );
    assert!(printed[1].contains("serving") && !printed[1].contains(&key), "{}", printed[1]);
}

/// The names of the files below a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_with(&entry.path(), text));
        } else if holds(&fs::read(entry.path()).unwrap_or_default(), text.as_bytes()) {
            found.push(entry.file_name().into_string().unwrap());
        }
    }
    found
}

fn holds(bytes: &[u8], text: &[u8]) -> bool {
    let mut starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == text[0]).map(|(at, _)| at);
    starts.any(|at| bytes[at..].starts_with(text))
}

#[tokio::test]
async fn health_exit_code_reflects_readiness() {
    let site = Site::new();
    let refused = format!("not ready: http://{}/readyz: Connection refused (os error 111)\n", site.address);
    assert_eq!(health(&site).await, (Some(1), String::new(), refused.clone()));
    let gateway = site.serve().await;
    let ready = (Some(0), "ready\n".to_owned(), String::new());
    assert_eq!(health(&site).await, ready);

    let postmaster = site.folder.postmaster().unwrap();
    let database: Vec<_> = children(postmaster).into_iter().chain([postmaster]).collect();
    signal_all(&database, Signal::SIGSTOP);
    eventually("it notices", async || !site.is_ready().await).await;
    let unready = format!("not ready: http://{}/readyz answered 503 Service Unavailable: ", site.address);
    let (code, _, error) = health(&site).await;
    assert!(
        code == Some(1) && error.starts_with(&unready) && error.contains("database_unreachable"),
        "{error}"
    );
    signal_all(&database, Signal::SIGCONT);
    ready_again(&site).await;
    assert_eq!(health(&site).await, ready);

    assert_eq!(gateway.stop().await.code(), Some(0));
    assert_eq!(health(&site).await, (Some(1), String::new(), refused));
}

async fn health(site: &Site) -> (Option<i32>, String, String) {
    let output = site.command("health").output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn write_that_hangs_at_shutdown_costs_no_usage() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_SERVER__SHUTDOWN_SECONDS", 1)
        .set("WAGGLE_USAGE__SETTLE_SECONDS", 3_600)
        .start()
        .await;
    let key = replica.acme("a").await;
    let mut lock = database.connect().await;
    lock.execute("begin").await.unwrap();
    lock.execute("select from heads for update").await.unwrap();
    let (http, operator) = (replica.http.clone(), replica.operator.clone());
    let hanging = tokio::spawn(async move {
        let body = json!({"name": "a", "contents": [{"text": "a"}]});
        http.admin(&operator, "PUT", &resource("a", "x:1"), Some(body)).await
    });
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    eventually("the write waits", async || database.number(waiting).await == 1).await;
    hanging.abort();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    assert_eq!(replica.http.post("a", &key, &list).await.status, 200);
    let usage = "select coalesce(sum(calls), 0)::bigint from agent_usage where method = 'resources/list'";
    assert_eq!(database.number(usage).await, 0, "it is in memory");
    replica.running.stop().await;
    assert_eq!(database.number(usage).await, 1);
    lock.execute("rollback").await.unwrap();
}
