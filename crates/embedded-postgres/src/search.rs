//! Finds the PostgreSQL installations, and selects one for the cluster.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::error::EmbeddedError;
use crate::installation::{Installation, Version};

/// The oldest supported major version.
const OLDEST: u32 = 14;
/// The maximum number of installations to inspect.
const MAX_CANDIDATES: usize = 32;
const VERSION_DEADLINE: Duration = Duration::from_secs(5);

/// Directories of the form `<parent>/<prefix>*/<tail>`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pattern {
    parent: &'static str,
    prefix: &'static str,
    tail: &'static str,
}

const fn pattern(parent: &'static str, prefix: &'static str, tail: &'static str) -> Pattern {
    Pattern { parent, prefix, tail }
}

/// Where packages install the programs without adding them to `PATH`.
pub(super) const WELL_KNOWN: &[Pattern] = &[
    pattern("/usr/lib/postgresql", "", "bin"),         // Debian, Ubuntu
    pattern("/usr", "pgsql-", "bin"),                  // PostgreSQL's packages for Fedora, RHEL
    pattern("/usr/libexec", "postgresql", ""),         // Alpine
    pattern("/usr/lib", "postgresql", "bin"),          // openSUSE
    pattern("/usr/lib64", "postgresql-", "bin"),       // Gentoo
    pattern("/opt/homebrew/opt", "postgresql", "bin"), // Homebrew
    pattern("/usr/local/opt", "postgresql", "bin"),    // Homebrew on Intel
    pattern("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"), // Homebrew on Linux
    pattern("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];

/// The installation in a directory, if there is one that runs.
async fn inspect(folder: PathBuf) -> Option<Installation> {
    if !folder.join("initdb").is_file() || !folder.join("postgres").is_file() {
        return None;
    }
    let mut command = Command::new(folder.join("postgres"));
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(VERSION_DEADLINE, command.output()).await.ok()?.ok()?;
    let version = Version::parse(&String::from_utf8_lossy(&output.stdout))?;
    Some(Installation { folder, version })
}

/// Where to search for installations.
#[derive(Debug)]
pub(super) struct Search<'a> {
    /// When set, the only directory searched.
    pub(super) bin_dir: Option<&'a Path>,
    pub(super) patterns: &'a [Pattern],
    /// The value of `PATH`, searched last.
    pub(super) path: Option<&'a OsStr>,
}

impl Search<'_> {
    /// All installations, in the order of preference.
    pub(super) async fn find(&self) -> Result<Vec<Installation>, EmbeddedError> {
        if let Some(folder) = self.bin_dir {
            let found = inspect(folder.to_owned()).await;
            return found.map(|one| vec![one]).ok_or_else(|| EmbeddedError::NotABinDir(folder.to_owned()));
        }
        let mut seen = HashSet::new();
        let mut found = inspect_all(self.patterns.iter().flat_map(expand), &mut seen).await;
        found.sort_by_key(|installation| std::cmp::Reverse(installation.version));
        let path = self.path.into_iter().flat_map(std::env::split_paths);
        found.extend(inspect_all(path.filter(|folder| folder.is_absolute()), &mut seen).await);
        Ok(found)
    }
}

/// The installations among `folders` that are not in `seen` yet.
async fn inspect_all(
    folders: impl Iterator<Item = PathBuf>,
    seen: &mut HashSet<PathBuf>,
) -> Vec<Installation> {
    let mut found = Vec::new();
    for folder in folders {
        let real = folder.join("postgres").canonicalize();
        if real.is_ok_and(|real| seen.len() < MAX_CANDIDATES && seen.insert(real)) {
            found.extend(inspect(folder).await);
        }
    }
    found
}

fn expand(pattern: &Pattern) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(pattern.parent) else { return Vec::new() };
    let fits = |name: &OsStr| name.as_encoded_bytes().starts_with(pattern.prefix.as_bytes());
    entries
        .flatten()
        .filter(|entry| fits(&entry.file_name()))
        .map(|entry| entry.path().join(pattern.tail))
        .collect()
}

/// Selects the first installation that can run the cluster in `folder`, of the major version `cluster`; without a
/// cluster, the first that can create one.
pub(super) fn choose(
    found: Vec<Installation>,
    folder: &Path,
    cluster: Option<String>,
) -> Result<Installation, EmbeddedError> {
    let fits = |found: &&Installation| {
        let major = found.version.major;
        major >= OLDEST && cluster.as_ref().is_none_or(|cluster| *cluster == major.to_string())
    };
    if let Some(installation) = found.iter().find(fits) {
        return Ok(installation.clone());
    }
    if found.is_empty() {
        return Err(EmbeddedError::NotInstalled);
    }
    Err(match cluster {
        Some(cluster) => EmbeddedError::VersionMismatch { folder: folder.to_owned(), cluster, found },
        None => EmbeddedError::TooOld(found),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation(folder: &str, major: u32, minor: u32) -> Installation {
        Installation { folder: folder.into(), version: Version { major, minor } }
    }

    fn chosen(found: &[Installation], cluster: Option<&str>) -> Result<PathBuf, String> {
        choose(found.to_vec(), Path::new("/data/postgres"), cluster.map(str::to_owned))
            .map(|installation| installation.folder)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_cluster_runs_on_its_version_and_a_new_one_on_the_first_found() {
        let found = [installation("/a", 17, 2), installation("/b", 15, 4), installation("/c", 13, 0)];
        assert_eq!(chosen(&found, None), Ok("/a".into()));
        assert_eq!(chosen(&found, Some("15")), Ok("/b".into()));
    }

    #[test]
    fn a_cluster_of_another_version_is_refused() {
        let found = [installation("/a", 17, 2), installation("/b", 15, 4)];
        assert_eq!(
            chosen(&found, Some("16")).unwrap_err(),
            "the database in /data/postgres was created by PostgreSQL 16, and only PostgreSQL 17.2 (/a), \
             PostgreSQL 15.4 (/b) was found; install PostgreSQL 16, or convert the database with pg_upgrade"
        );
    }

    #[test]
    fn releases_before_14_are_refused() {
        assert_eq!(
            chosen(&[installation("/c", 13, 9)], None).unwrap_err(),
            "PostgreSQL 13.9 (/c) is too old: expected PostgreSQL 14 or newer"
        );
    }

    #[tokio::test]
    async fn without_an_installation_the_error_says_what_to_install() {
        let search = Search { bin_dir: None, patterns: &[], path: Some(OsStr::new("/nowhere:relative")) };
        let found = search.find().await.unwrap();
        let expected = "\
no PostgreSQL programs were found; install PostgreSQL 14 or newer:

  Debian, Ubuntu:  apt install postgresql
  Fedora:          dnf install postgresql-server
  Alpine:          apk add postgresql
  macOS:           brew install postgresql@17";
        assert_eq!(chosen(&found, None).unwrap_err(), expected);
    }

    #[tokio::test]
    async fn well_known_directories_precede_the_path_newest_first() {
        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str, version: &str| {
            let bin = root.path().join(name).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            for program in ["postgres", "initdb"] {
                script(&bin.join(program), &format!("echo 'postgres (PostgreSQL) {version}'"));
            }
            bin
        };
        let old = folder("pg-14", "14.3");
        let new = folder("pg-17", "17.1");
        let other = folder("elsewhere", "99.1");
        let parent: &'static str = root.path().to_str().unwrap().to_owned().leak();
        let path = std::env::join_paths([&other, &new]).unwrap();
        let search = Search { bin_dir: None, patterns: &[pattern(parent, "pg-", "bin")], path: Some(&path) };
        let found = search.find().await.unwrap().into_iter().map(|installation| installation.folder);
        assert_eq!(found.collect::<Vec<_>>(), [new, old, other]);
    }

    /// Written by another process: a program that this one has open for writing, inherited by a child that another test
    /// is starting, cannot be executed.
    fn script(path: &Path, line: &str) {
        let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#;
        let status =
            std::process::Command::new("/bin/sh").args(["-c", write, "sh"]).arg(path).arg(line).status();
        assert!(status.unwrap().success());
    }
}
