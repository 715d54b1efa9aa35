//! First and later starts: created files, persistence and access.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Instant;

use embedded_postgres::{Embedded, EmbeddedOptions};

use crate::support::{Site, connect, create_table, durable, insert, options, rows, setting};

#[tokio::test]
async fn a_later_start_keeps_the_data_of_an_earlier_one() {
    let site = Site::new();
    let began = Instant::now();
    let embedded = Embedded::start(durable(&site.data_dir())).await.unwrap();
    let first = began.elapsed();
    let mut connection = connect(&embedded).await;
    create_table(&mut connection).await;
    insert(&mut connection, 7).await;
    // Stays connected: a client must not delay the shutdown.
    embedded.stop().await;
    assert_eq!(site.postmaster(), None, "removed by a clean shutdown");
    assert_eq!(site.socket_folder(), None);
    assert_eq!(site.shutdowns(), ["fast"]);

    let began = Instant::now();
    let embedded = Embedded::start(durable(&site.data_dir())).await.unwrap();
    println!("first start {first:?}, later start {:?}", began.elapsed());
    assert_eq!(rows(&embedded).await, [7]);
    embedded.stop().await;
}

#[tokio::test]
async fn a_cluster_is_utf_8_and_durable_unless_for_tests() {
    let site = Site::new();
    let durable = Embedded::start(durable(&site.data_dir())).await.unwrap();
    let mut found = Vec::new();
    for name in ["fsync", "synchronous_commit", "full_page_writes", "server_encoding", "max_connections"] {
        found.push(setting(&durable, name).await);
    }
    assert_eq!(found, ["on", "on", "on", "UTF8", "100"]);
    assert!(["C.UTF-8", "C"].contains(&setting(&durable, "lc_collate").await.as_str()));
    durable.stop().await;

    let for_tests = site.start().await;
    assert_eq!(setting(&for_tests, "fsync").await, "off");
    for_tests.stop().await;
}

#[tokio::test]
async fn a_data_directory_may_be_deeper_than_a_socket_path() {
    let site = Site::new();
    let deep = site.data_dir().join("d".repeat(120)).join("e".repeat(120));
    let embedded = Embedded::start(options(&deep)).await.unwrap();
    create_table(&mut connect(&embedded).await).await;
    assert_eq!(rows(&embedded).await, [0_i64; 0]);
    embedded.stop().await;
}

#[tokio::test]
async fn the_socket_directory_is_private_to_the_servers_user() {
    let site = Site::new();
    let embedded = site.start().await;
    let socket = fs::metadata(site.socket_folder().unwrap()).unwrap();
    let cluster = fs::metadata(site.data_dir().join("postgres")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o7777, 0o700);
    assert_eq!(cluster.permissions().mode() & 0o7777, 0o700);
    assert_eq!(socket.uid(), cluster.uid());
    assert_ne!(socket.uid(), 0);
    embedded.stop().await;
}

#[tokio::test]
async fn the_runtime_directory_holds_the_socket_directory() {
    let site = Site::new();
    let runtime_dir = tempfile::tempdir().unwrap();
    let embedded =
        Embedded::start(EmbeddedOptions { runtime_dir: Some(runtime_dir.path().into()), ..site.options() })
            .await
            .unwrap();
    let folder = site.socket_folder().unwrap();
    // As root the server runs as another user, without access to root's runtime directory.
    let expected = if nix::unistd::geteuid().is_root() { "/tmp".as_ref() } else { runtime_dir.path() };
    assert_eq!(folder.parent(), Some(expected));
    embedded.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_server_listens_on_no_tcp_port() {
    let site = Site::new();
    let embedded = site.start().await;
    assert_eq!(setting(&embedded, "listen_addresses").await, "");
    let sockets = sockets_of(site.postmaster().unwrap().as_raw());
    let listed_in = |table: &str, column: usize| {
        let table = fs::read_to_string(format!("/proc/net/{table}")).unwrap();
        let inode = |line: &str| line.split_whitespace().nth(column).map(str::to_owned);
        table.lines().filter_map(inode).filter(|inode| sockets.contains(inode)).count()
    };
    assert!(listed_in("unix", 6) >= 1, "the server has a Unix socket, so sockets are found this way");
    assert_eq!((listed_in("tcp", 9), listed_in("tcp6", 9)), (0, 0));
    embedded.stop().await;
}

#[cfg(target_os = "linux")]
fn sockets_of(pid: i32) -> Vec<String> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
    let inode = |target: std::path::PathBuf| {
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
    };
    targets.filter_map(inode).collect()
}
