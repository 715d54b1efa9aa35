//! Killed owners and servers: what stops, what is restarted, which rows remain.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use embedded_postgres::{Embedded, EmbeddedLimits, EmbeddedOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::ConnectOptions;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::support::{
    Site, children, connect, create_table, durable, eventually, insert, is_alive, kill_hard, parent, rows,
};

const HOLDER: &str = "EMBEDDED_POSTGRES_TEST_HOLDER";

/// The process that the tests kill: commits rows and prints their numbers.
#[tokio::test]
async fn holder() {
    let Some(data_dir) = std::env::var_os(HOLDER).map(PathBuf::from) else { return };
    let embedded = Embedded::start(durable(&data_dir)).await.unwrap();
    let mut connection = connect(&embedded).await;
    create_table(&mut connection).await;
    for number in 1.. {
        insert(&mut connection, number).await;
        println!("committed {number}");
    }
}

/// An owner in a process of its own.
struct Holder {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The last row that it reported as committed.
    last: i64,
}

impl Holder {
    fn spawn(data_dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crashes::holder", "--nocapture"])
            .env(HOLDER, data_dir)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, last: 0 }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap())
    }

    /// Reads until row `number` is committed.
    async fn committed(&mut self, number: i64) {
        while self.last < number {
            assert!(self.read_line().await, "the holder ended");
        }
    }

    async fn read_line(&mut self) -> bool {
        let Some(line) = self.lines.next_line().await.unwrap() else { return false };
        // The test harness prints on the same first line.
        if let Some((_, number)) = line.split_once("committed ") {
            self.last = number.parse().unwrap();
        }
        true
    }

    /// Kills the process with `SIGKILL` and returns the last row that it reported as committed.
    async fn kill(mut self) -> i64 {
        self.child.kill().await.unwrap();
        while self.read_line().await {}
        self.last
    }
}

#[tokio::test]
async fn killing_the_owner_stops_the_server_and_removes_its_socket() {
    let site = Site::new();
    let mut holder = Holder::spawn(&site.data_dir());
    holder.committed(1).await;
    let (server, folder) = (site.postmaster().unwrap(), site.socket_folder().unwrap());
    assert!(is_alive(server) && folder.exists());
    holder.kill().await;
    eventually("the server ends", async || !is_alive(server)).await;
    eventually("its directory is removed", async || !folder.exists()).await;
    assert_eq!(site.shutdowns(), ["fast"]);
}

#[tokio::test]
async fn rows_committed_before_the_owner_was_killed_are_kept() {
    let site = Site::new();
    let mut holder = Holder::spawn(&site.data_dir());
    holder.committed(100).await;
    let last = holder.kill().await;
    // Without waiting: the old server may still be shutting down.
    let embedded = site.start().await;
    let kept = rows(&embedded).await;
    // One more may have been committed without its confirmation.
    let expected: Vec<i64> = (1..=kept.len().try_into().unwrap()).collect();
    assert_eq!(kept, expected);
    assert!([last, last + 1].contains(kept.last().unwrap()), "confirmed {last}, kept {:?}", kept.last());
    embedded.stop().await;
}

#[tokio::test]
async fn killing_the_owner_during_initdb_leaves_no_cluster() {
    let site = Site::new();
    let holder = Holder::spawn(&site.data_dir());
    let incomplete = async || drafts(&site).iter().any(|draft| draft.join("PG_VERSION").exists());
    eventually("initdb has created files", incomplete).await;
    holder.kill().await;
    assert!(!site.data_dir().join("postgres").exists());
    let embedded = site.start().await;
    create_table(&mut connect(&embedded).await).await;
    embedded.stop().await;
    site.start().await.stop().await;
    assert_eq!(drafts(&site), Vec::<PathBuf>::new());
}

fn drafts(site: &Site) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(site.data_dir()) else { return Vec::new() };
    let is_draft = |path: &PathBuf| path.to_string_lossy().contains("postgres.initdb-");
    entries.flatten().map(|entry| entry.path()).filter(is_draft).collect()
}

#[tokio::test]
async fn a_killed_server_is_restarted_with_every_committed_row() {
    let site = Site::new();
    let embedded = Embedded::start(durable(&site.data_dir())).await.unwrap();
    create_table(&mut connect(&embedded).await).await;
    for number in 1..=3 {
        insert(&mut connect(&embedded).await, number).await;
        let killed = site.postmaster().unwrap();
        kill_hard(killed);
        another_server(&site, &embedded, killed).await;
        assert_eq!(rows(&embedded).await, (1..=number).collect::<Vec<_>>());
    }
    embedded.stop().await;
    assert_eq!(site.postmaster(), None, "the restarted server is stopped too");
}

/// Waits until another server than `first` answers.
async fn another_server(site: &Site, embedded: &Embedded, first: Pid) {
    eventually("another server answers", async || {
        let answers = embedded.connect_options().connect().await.is_ok();
        answers && site.postmaster().is_some_and(|now| now != first)
    })
    .await;
}

#[tokio::test]
async fn a_killed_guardian_does_not_leave_two_servers() {
    let site = Site::new();
    let embedded = site.start().await;
    create_table(&mut connect(&embedded).await).await;
    let first = site.postmaster().unwrap();
    kill_hard(parent(first));
    another_server(&site, &embedded, first).await;
    assert!(!is_alive(first));
    embedded.stop().await;
}

#[tokio::test]
async fn a_server_that_does_not_exit_is_reported() {
    let site = Site::new();
    let mut holder = Holder::spawn(&site.data_dir());
    holder.committed(1).await;
    let server = site.postmaster().unwrap();
    // Both processes of the guardian die with the owner, so that nothing stops the server.
    kill(holder.pid(), Signal::SIGSTOP).unwrap();
    let guardian = parent(server);
    let watcher = children(guardian).into_iter().find(|child| *child != server).unwrap();
    kill_hard(watcher);
    kill_hard(guardian);
    holder.kill().await;
    let limits = EmbeddedLimits { predecessor: Duration::from_secs(1), ..EmbeddedLimits::default() };
    let error = site.refusal(EmbeddedOptions { limits, ..site.options() }).await;
    kill(server, Signal::SIGINT).unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "a PostgreSQL server of an earlier run (process {server}) still uses {} after 1 s; stop it with \
             `kill -INT` and start again",
            site.data_dir().canonicalize().unwrap().join("postgres").display()
        )
    );
    site.start().await.stop().await;
}

#[tokio::test]
async fn a_leftover_socket_directory_is_removed_by_the_next_start() {
    let site = Site::new();
    site.start().await.stop().await;
    let embedded = site.start().await;
    let left = site.socket_folder().unwrap();
    let record = fs::read(site.data_dir().join("embedded.socket")).unwrap();
    embedded.stop().await;
    // As after a power failure: the folder and its record remain.
    fs::create_dir(&left).unwrap();
    restore(&left, &site);
    fs::write(left.join(".s.PGSQL.5432.lock"), "").unwrap();
    fs::write(site.data_dir().join("embedded.socket"), record).unwrap();
    let embedded = site.start().await;
    assert!(!left.exists());
    embedded.stop().await;
}

/// As in a container, where a thread of a new process may have the id of a terminated server.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_terminated_server_with_the_id_of_a_thread_is_ignored() {
    let site = Site::new();
    site.start().await.stop().await;
    let thread = fs::read_link("/proc/thread-self").unwrap();
    let thread = thread.file_name().unwrap().to_str().unwrap();
    assert_ne!(thread, std::process::id().to_string());
    fs::write(site.data_dir().join("postgres/postmaster.pid"), format!("{thread}\n")).unwrap();
    let limits = EmbeddedLimits { predecessor: Duration::ZERO, ..EmbeddedLimits::default() };
    Embedded::start(EmbeddedOptions { limits, ..site.options() }).await.unwrap().stop().await;
}

/// Gives `folder` the owner and mode of the cluster, as a socket's folder has them.
fn restore(folder: &Path, site: &Site) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let cluster = fs::metadata(site.data_dir().join("postgres")).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    chown(folder, Some(cluster.uid()), Some(cluster.gid())).unwrap();
}
