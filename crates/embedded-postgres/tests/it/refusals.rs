//! Starts that are refused, and their errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use embedded_postgres::{Embedded, EmbeddedOptions};

use crate::support::{Site, connect, create_table, options, rows};

#[tokio::test]
async fn a_second_owner_of_a_data_directory_is_refused() {
    let site = Site::new();
    let embedded = site.start().await;
    create_table(&mut connect(&embedded).await).await;
    assert_eq!(
        site.refusal(site.options()).await.to_string(),
        format!(
            "the data directory {} is in use by another process (process {})",
            site.data_dir().canonicalize().unwrap().display(),
            std::process::id()
        )
    );
    assert_eq!(rows(&embedded).await, [0_i64; 0], "the first one is unaffected");
    embedded.stop().await;
}

#[tokio::test]
async fn a_cluster_of_another_major_version_is_refused_unchanged() {
    let site = Site::new();
    site.start().await.stop().await;
    let bin = fake_programs(&site, "99.1");
    let newer = EmbeddedOptions { bin_dir: Some(bin.clone()), ..site.options() };
    let cluster = site.data_dir().join("postgres");
    let major = fs::read_to_string(cluster.join("PG_VERSION")).unwrap();
    assert_eq!(
        site.refusal(newer).await.to_string(),
        format!(
            "the database in {} was created by PostgreSQL {major}, and only PostgreSQL 99.1 ({}) was found; install \
             PostgreSQL {major}, or convert the database with pg_upgrade",
            cluster.display(),
            bin.display(),
            major = major.trim()
        )
    );
    site.start().await.stop().await;
}

#[tokio::test]
async fn a_bin_dir_without_programs_is_refused() {
    let site = Site::new();
    let bin = site.root.path().to_owned();
    let wrong = EmbeddedOptions { bin_dir: Some(bin.clone()), ..site.options() };
    assert_eq!(
        site.refusal(wrong).await.to_string(),
        format!("{} contains no working PostgreSQL programs `postgres` and `initdb`", bin.display())
    );
    assert!(!site.data_dir().exists());
}

#[tokio::test]
async fn releases_before_14_are_refused() {
    let site = Site::new();
    let bin = fake_programs(&site, "13.20");
    let old = EmbeddedOptions { bin_dir: Some(bin.clone()), ..site.options() };
    assert_eq!(
        site.refusal(old).await.to_string(),
        format!("PostgreSQL 13.20 ({}) is too old: expected PostgreSQL 14 or newer", bin.display())
    );
}

#[tokio::test]
async fn a_directory_that_denies_access_is_reported_with_the_fix() {
    if !nix::unistd::geteuid().is_root() {
        return; // The server runs as this user then.
    }
    let site = Site::new();
    let shut = site.root.path().join("shut");
    fs::create_dir(&shut).unwrap();
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o700)).unwrap();
    let data_dir = shut.join("below/data");
    let error = Embedded::start(options(&data_dir)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "PostgreSQL runs as the user `postgres`, which has no search permission on {shut}; grant it with \
             `chmod o+x {shut}`, or choose another path than {}",
            data_dir.display(),
            shut = shut.display()
        )
    );
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o701)).unwrap();
    Embedded::start(options(&data_dir)).await.unwrap().stop().await;
}

#[tokio::test]
async fn other_files_in_the_cluster_directory_are_refused_unchanged() {
    let site = Site::new();
    let other = site.data_dir().join("postgres");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("letters.txt"), "mine").unwrap();
    assert_eq!(
        site.refusal(site.options()).await.to_string(),
        format!(
            "{} is not empty and contains no PostgreSQL cluster (no PG_VERSION file); move it away, or choose another \
             data directory",
            other.display()
        )
    );
    assert_eq!(fs::read_to_string(other.join("letters.txt")).unwrap(), "mine");
}

#[tokio::test]
async fn a_failed_start_quotes_the_log_and_removes_the_socket_directory() {
    let site = Site::new();
    site.start().await.stop().await;
    let configuration = site.data_dir().join("postgres/postgresql.conf");
    let text = fs::read_to_string(&configuration).unwrap();
    fs::write(&configuration, format!("{text}\nno_such_setting = on\n")).unwrap();
    let error = site.refusal(site.options()).await.to_string();
    assert!(error.starts_with("PostgreSQL did not start (exit status: 1). The last lines of "), "{error}");
    assert!(error.contains("unrecognized configuration parameter \"no_such_setting\""), "{error}");
    assert_eq!(site.socket_folder(), None);
}

/// A directory of programs that only print their version.
fn fake_programs(site: &Site, version: &str) -> std::path::PathBuf {
    let bin = site.root.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for program in ["postgres", "initdb"] {
        write_script(&bin.join(program), &format!("echo 'postgres (PostgreSQL) {version}'"));
    }
    bin
}

/// Written by another process: a program that this one has open for writing, inherited by a child that another test is
/// starting, cannot be executed.
fn write_script(path: &Path, line: &str) {
    let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#;
    let status = Command::new("/bin/sh").args(["-c", write, "sh"]).arg(path).arg(line).status().unwrap();
    assert!(status.success());
}
