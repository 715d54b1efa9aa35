//! Gateways and servers that are killed: what ends, what comes back, what is kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use sqlx::ConnectOptions;

use super::support::{
    Place, children, connect, create_table, durable, eventually, insert, is_alive, kill_hard, parent, rows,
};
use waggle::store::embedded::{Embedded, EmbeddedLimits, EmbeddedOptions};

const HOLDER: &str = "WAGGLE_TEST_HOLDS";

/// Not a test of its own: the process that others kill. It commits rows and says which.
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

/// A gateway in a process of its own.
struct Holder {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The last row that it said is committed.
    last: i64,
}

impl Holder {
    fn spawn(data_dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "embedded::crashes::holder", "--nocapture"])
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
        // The test harness leaves its own words on the first line.
        if let Some((_, number)) = line.split_once("committed ") {
            self.last = number.parse().unwrap();
        }
        true
    }

    /// Kills the process, without a chance to clean up, and returns the last row that it saw committed.
    async fn kill(mut self) -> i64 {
        self.child.kill().await.unwrap();
        while self.read_line().await {}
        self.last
    }
}

#[tokio::test]
async fn a_killed_gateway_takes_its_server_along_and_its_socket_folder() {
    let place = Place::new();
    let mut holder = Holder::spawn(&place.data_dir());
    holder.committed(1).await;
    let (server, folder) = (place.postmaster().unwrap(), place.socket_folder().unwrap());
    assert!(is_alive(server) && folder.exists());
    holder.kill().await;
    eventually("the server ends", async || !is_alive(server)).await;
    eventually("its folder is removed", async || !folder.exists()).await;
    assert_eq!(place.ways_of_ending(), ["fast"]);
}

#[tokio::test]
async fn every_row_committed_before_the_gateway_was_killed_is_there_after_a_restart() {
    let place = Place::new();
    let mut holder = Holder::spawn(&place.data_dir());
    holder.committed(100).await;
    let last = holder.kill().await;
    // At once: the old server may still be ending.
    let embedded = place.start().await;
    let kept = rows(&embedded).await;
    // One more may have been committed and not told.
    let expected: Vec<i64> = (1..=kept.len().try_into().unwrap()).collect();
    assert_eq!(kept, expected);
    assert!([last, last + 1].contains(kept.last().unwrap()), "told {last}, kept {:?}", kept.last());
    embedded.stop().await;
}

#[tokio::test]
async fn a_gateway_killed_while_creating_the_cluster_leaves_nothing_that_counts() {
    let place = Place::new();
    let holder = Holder::spawn(&place.data_dir());
    let half_made = async || drafts(&place).iter().any(|draft| draft.join("PG_VERSION").exists());
    eventually("a cluster is in the making", half_made).await;
    holder.kill().await;
    assert!(!place.data_dir().join("postgres").exists());
    let embedded = place.start().await;
    create_table(&mut connect(&embedded).await).await;
    embedded.stop().await;
    place.start().await.stop().await;
    assert_eq!(drafts(&place), Vec::<PathBuf>::new());
}

fn drafts(place: &Place) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(place.data_dir()) else { return Vec::new() };
    let is_draft = |path: &PathBuf| path.to_string_lossy().contains("postgres.initdb-");
    entries.flatten().map(|entry| entry.path()).filter(is_draft).collect()
}

#[tokio::test]
async fn a_server_that_is_killed_is_started_again_with_every_committed_row() {
    let place = Place::new();
    let embedded = Embedded::start(durable(&place.data_dir())).await.unwrap();
    create_table(&mut connect(&embedded).await).await;
    for number in 1..=3 {
        insert(&mut connect(&embedded).await, number).await;
        let killed = place.postmaster().unwrap();
        kill_hard(killed);
        another_server(&place, &embedded, killed).await;
        assert_eq!(rows(&embedded).await, (1..=number).collect::<Vec<_>>());
    }
    embedded.stop().await;
    assert_eq!(place.postmaster(), None, "what was started again is stopped too");
}

/// Waits until another server than `first` answers.
async fn another_server(place: &Place, embedded: &Embedded, first: Pid) {
    eventually("another server answers", async || {
        let answers = embedded.connect_options().connect().await.is_ok();
        answers && place.postmaster().is_some_and(|now| now != first)
    })
    .await;
}

#[tokio::test]
async fn a_guardian_that_is_killed_does_not_leave_two_servers() {
    let place = Place::new();
    let embedded = place.start().await;
    create_table(&mut connect(&embedded).await).await;
    let first = place.postmaster().unwrap();
    kill_hard(parent(first));
    another_server(&place, &embedded, first).await;
    assert!(!is_alive(first));
    embedded.stop().await;
}

#[tokio::test]
async fn a_server_that_will_not_end_is_named_when_the_wait_is_over() {
    let place = Place::new();
    let mut holder = Holder::spawn(&place.data_dir());
    holder.committed(1).await;
    let server = place.postmaster().unwrap();
    // Both halves of the guardian die with the gateway, so that nobody ends the server.
    kill(holder.pid(), Signal::SIGSTOP).unwrap();
    let guardian = parent(server);
    let watcher = children(guardian).into_iter().find(|child| *child != server).unwrap();
    kill_hard(watcher);
    kill_hard(guardian);
    holder.kill().await;
    let limits = EmbeddedLimits { predecessor: Duration::from_secs(1), ..EmbeddedLimits::default() };
    let error = place.refusal(EmbeddedOptions { limits, ..place.options() }).await;
    kill(server, Signal::SIGINT).unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "a PostgreSQL server of an earlier run (process {server}) still uses {} after 1 seconds; once it has \
             ended (`kill -INT` ends it) start the gateway again",
            place.data_dir().canonicalize().unwrap().join("postgres").display()
        )
    );
    place.start().await.stop().await;
}

#[tokio::test]
async fn the_socket_folder_of_a_run_that_could_not_remove_it_is_removed_by_the_next() {
    let place = Place::new();
    place.start().await.stop().await;
    let embedded = place.start().await;
    let left = place.socket_folder().unwrap();
    let record = fs::read(place.data_dir().join("embedded.socket")).unwrap();
    embedded.stop().await;
    // As after a power cut: the folder and its record are there.
    fs::create_dir(&left).unwrap();
    restore(&left, &place);
    fs::write(left.join(".s.PGSQL.5432.lock"), "").unwrap();
    fs::write(place.data_dir().join("embedded.socket"), record).unwrap();
    let embedded = place.start().await;
    assert!(!left.exists());
    embedded.stop().await;
}

/// As in a container, where a new gateway may have a thread with the number of a dead server.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_dead_server_whose_number_a_thread_of_the_gateway_has_now_is_not_waited_for() {
    let place = Place::new();
    place.start().await.stop().await;
    let thread = fs::read_link("/proc/thread-self").unwrap();
    let thread = thread.file_name().unwrap().to_str().unwrap();
    assert_ne!(thread, std::process::id().to_string());
    fs::write(place.data_dir().join("postgres/postmaster.pid"), format!("{thread}\n")).unwrap();
    let limits = EmbeddedLimits { predecessor: Duration::ZERO, ..EmbeddedLimits::default() };
    Embedded::start(EmbeddedOptions { limits, ..place.options() }).await.unwrap().stop().await;
}

/// Gives `folder` the owner and mode of the cluster, as a socket's folder has them.
fn restore(folder: &Path, place: &Place) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let cluster = fs::metadata(place.data_dir().join("postgres")).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    chown(folder, Some(cluster.uid()), Some(cluster.gid())).unwrap();
}
