//! Starts that are refused, and what the error says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::support::{Place, rows};
use super::support::{connect, create_table, options};
use waggle::store::embedded::{Embedded, EmbeddedOptions};

#[tokio::test]
async fn a_second_gateway_on_the_same_data_directory_is_refused() {
    let place = Place::new();
    let embedded = place.start().await;
    create_table(&mut connect(&embedded).await).await;
    assert_eq!(
        place.refusal(place.options()).await.to_string(),
        format!(
            "another gateway (process {}) already runs on the data directory {}; stop it, or give this one a \
             data directory of its own with --data-dir",
            std::process::id(),
            place.data_dir().canonicalize().unwrap().display()
        )
    );
    assert_eq!(rows(&embedded).await, [0_i64; 0], "the first one is not disturbed");
    embedded.stop().await;
}

#[tokio::test]
async fn a_cluster_of_another_major_version_is_refused_and_left_as_it_is() {
    let place = Place::new();
    place.start().await.stop().await;
    let bin = fake_programs(&place, "99.1");
    let newer = EmbeddedOptions { bin_dir: Some(bin.clone()), ..place.options() };
    let cluster = place.data_dir().join("postgres");
    let major = fs::read_to_string(cluster.join("PG_VERSION")).unwrap();
    assert_eq!(
        place.refusal(newer).await.to_string(),
        format!(
            "the database in {} was made by PostgreSQL {major}, and only PostgreSQL 99.1 ({}) was found. Install \
             PostgreSQL {major} beside it, or name the folder of its programs with WAGGLE_EMBEDDED__BIN_DIR, or \
             bring the database to the other version with pg_upgrade",
            cluster.display(),
            bin.display(),
            major = major.trim()
        )
    );
    place.start().await.stop().await;
}

#[tokio::test]
async fn a_bin_dir_without_programs_is_refused_and_nothing_else_is_tried() {
    let place = Place::new();
    let bin = place.root.path().to_owned();
    let wrong = EmbeddedOptions { bin_dir: Some(bin.clone()), ..place.options() };
    assert_eq!(
        place.refusal(wrong).await.to_string(),
        format!(
            "embedded.bin_dir is {}, where no working PostgreSQL programs `postgres` and `initdb` are; name the \
             folder that holds them (on Debian /usr/lib/postgresql/15/bin), or unset it to have them looked for",
            bin.display()
        )
    );
    assert!(!place.data_dir().exists());
}

#[tokio::test]
async fn a_release_before_14_is_refused_by_name() {
    let place = Place::new();
    let bin = fake_programs(&place, "13.20");
    let old = EmbeddedOptions { bin_dir: Some(bin.clone()), ..place.options() };
    assert_eq!(
        place.refusal(old).await.to_string(),
        format!(
            "PostgreSQL 13.20 ({}) is too old: the embedded database needs PostgreSQL 14 or newer",
            bin.display()
        )
    );
}

#[tokio::test]
async fn a_folder_that_shuts_out_the_servers_user_is_named_with_the_mend() {
    if !nix::unistd::geteuid().is_root() {
        return; // Then the server runs as the gateway's own user.
    }
    let place = Place::new();
    let shut = place.root.path().join("shut");
    fs::create_dir(&shut).unwrap();
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o700)).unwrap();
    let data_dir = shut.join("below/data");
    let error = Embedded::start(options(&data_dir)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "PostgreSQL runs as the user `postgres`, who may not pass through {shut}. Let others pass with \
             `chmod o+x {shut}`, or choose another place than {}",
            data_dir.display(),
            shut = shut.display()
        )
    );
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o701)).unwrap();
    Embedded::start(options(&data_dir)).await.unwrap().stop().await;
}

#[tokio::test]
async fn something_else_in_the_place_of_the_cluster_is_refused_and_left_alone() {
    let place = Place::new();
    let other = place.data_dir().join("postgres");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("letters.txt"), "mine").unwrap();
    assert_eq!(
        place.refusal(place.options()).await.to_string(),
        format!(
            "{} is not empty and holds no PostgreSQL cluster (no PG_VERSION file); move it away, or choose \
             another data directory with --data-dir",
            other.display()
        )
    );
    assert_eq!(fs::read_to_string(other.join("letters.txt")).unwrap(), "mine");
}

#[tokio::test]
async fn a_start_that_fails_quotes_the_servers_log_and_leaves_no_socket_folder() {
    let place = Place::new();
    place.start().await.stop().await;
    let configuration = place.data_dir().join("postgres/postgresql.conf");
    let text = fs::read_to_string(&configuration).unwrap();
    fs::write(&configuration, format!("{text}\nno_such_setting = on\n")).unwrap();
    let error = place.refusal(place.options()).await.to_string();
    assert!(error.starts_with("PostgreSQL did not start (exit status: 1). The last lines of "), "{error}");
    assert!(error.contains("unrecognized configuration parameter \"no_such_setting\""), "{error}");
    assert_eq!(place.socket_folder(), None);
}

/// A folder with programs that only know their version.
fn fake_programs(place: &Place, version: &str) -> std::path::PathBuf {
    let bin = place.root.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for program in ["postgres", "initdb"] {
        write_script(&bin.join(program), &format!("echo 'postgres (PostgreSQL) {version}'"));
    }
    bin
}

/// Written by another process: while this one has a program open for writing, a child that another test is just
/// starting may have it open too, and then it cannot be run.
fn write_script(path: &Path, line: &str) {
    let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#;
    let status = Command::new("/bin/sh").args(["-c", write, "sh"]).arg(path).arg(line).status().unwrap();
    assert!(status.success());
}
