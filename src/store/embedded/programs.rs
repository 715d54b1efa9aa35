//! Finds the PostgreSQL programs, and picks those that fit the cluster.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::error::EmbeddedError;

/// The oldest major version that the gateway's schema runs on.
const OLDEST: u32 = 14;
/// More installations than this on one machine are not looked at.
const MOST_CANDIDATES: usize = 32;
const VERSION_DEADLINE: Duration = Duration::from_secs(5);

/// Folders of the form `<parent>/<prefix><anything>/<tail>`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    parent: &'static str,
    prefix: &'static str,
    tail: &'static str,
}

const fn place(parent: &'static str, prefix: &'static str, tail: &'static str) -> Place {
    Place { parent, prefix, tail }
}

/// Where packages put the programs without putting them on `PATH`.
pub(super) const WELL_KNOWN: &[Place] = &[
    place("/usr/lib/postgresql", "", "bin"),         // Debian, Ubuntu
    place("/usr", "pgsql-", "bin"),                  // PostgreSQL's packages for Fedora, RHEL
    place("/usr/libexec", "postgresql", ""),         // Alpine
    place("/usr/lib", "postgresql", "bin"),          // openSUSE
    place("/usr/lib64", "postgresql-", "bin"),       // Gentoo
    place("/opt/homebrew/opt", "postgresql", "bin"), // Homebrew
    place("/usr/local/opt", "postgresql", "bin"),    // Homebrew on Intel
    place("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"), // Homebrew on Linux
    place("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];

/// A PostgreSQL release; ordered by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The part that a cluster is bound to.
    pub major: u32,
    /// The bug-fix release; 0 for a pre-release.
    pub minor: u32,
}

impl Version {
    /// Reads the answer of `postgres --version`.
    fn parse(answer: &str) -> Option<Self> {
        let (_, number) = answer.split_once("(PostgreSQL) ")?;
        let leading = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse().ok()
        };
        let mut parts = number.split('.');
        Some(Self { major: leading(parts.next()?)?, minor: parts.next().and_then(leading).unwrap_or(0) })
    }
}

/// The programs of one installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The folder with `postgres` and `initdb` in it.
    pub folder: PathBuf,
    /// What `postgres` says it is.
    pub version: Version,
}

impl Programs {
    pub(super) fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.folder.join("initdb")
    }

    async fn look(folder: PathBuf) -> Option<Self> {
        if !folder.join("initdb").is_file() || !folder.join("postgres").is_file() {
            return None;
        }
        let mut command = Command::new(folder.join("postgres"));
        command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(VERSION_DEADLINE, command.output()).await.ok()?.ok()?;
        let version = Version::parse(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self { folder, version })
    }
}

/// Where to look for programs.
#[derive(Debug)]
pub(super) struct Search<'a> {
    /// When given, the only folder looked at.
    pub(super) bin_dir: Option<&'a Path>,
    pub(super) places: &'a [Place],
    /// The value of `PATH`, looked at last.
    pub(super) path: Option<&'a OsStr>,
}

impl Search<'_> {
    /// All installations, in the order of preference.
    pub(super) async fn find(&self) -> Result<Vec<Programs>, EmbeddedError> {
        if let Some(folder) = self.bin_dir {
            let programs = Programs::look(folder.to_owned()).await;
            return programs.map(|one| vec![one]).ok_or_else(|| EmbeddedError::NotABinDir(folder.to_owned()));
        }
        let mut seen = HashSet::new();
        let mut found = look_at(self.places.iter().flat_map(expand), &mut seen).await;
        found.sort_by_key(|programs| std::cmp::Reverse(programs.version));
        let path = self.path.into_iter().flat_map(std::env::split_paths);
        found.extend(look_at(path.filter(|folder| folder.is_absolute()), &mut seen).await);
        Ok(found)
    }
}

/// The installations among `folders` that are not yet in `seen`.
async fn look_at(folders: impl Iterator<Item = PathBuf>, seen: &mut HashSet<PathBuf>) -> Vec<Programs> {
    let mut found = Vec::new();
    for folder in folders {
        let real = folder.join("postgres").canonicalize();
        if real.is_ok_and(|real| seen.len() < MOST_CANDIDATES && seen.insert(real)) {
            found.extend(Programs::look(folder).await);
        }
    }
    found
}

fn expand(place: &Place) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(place.parent) else { return Vec::new() };
    let fits = |name: &OsStr| name.as_encoded_bytes().starts_with(place.prefix.as_bytes());
    entries
        .flatten()
        .filter(|entry| fits(&entry.file_name()))
        .map(|entry| entry.path().join(place.tail))
        .collect()
}

/// Picks the first of `found` that can run the cluster in `folder`, whose `PG_VERSION` says `cluster`; without
/// one, the first that can make one.
pub(super) fn choose(
    found: Vec<Programs>,
    folder: &Path,
    cluster: Option<String>,
) -> Result<Programs, EmbeddedError> {
    let fits = |programs: &&Programs| {
        let major = programs.version.major;
        major >= OLDEST && cluster.as_ref().is_none_or(|cluster| *cluster == major.to_string())
    };
    if let Some(programs) = found.iter().find(fits) {
        return Ok(programs.clone());
    }
    if found.is_empty() {
        return Err(EmbeddedError::NoPrograms);
    }
    Err(match cluster {
        Some(cluster) => EmbeddedError::VersionMismatch { folder: folder.to_owned(), cluster, found },
        None => EmbeddedError::TooOld(found),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(folder: &str, major: u32, minor: u32) -> Programs {
        Programs { folder: folder.into(), version: Version { major, minor } }
    }

    fn chosen(found: &[Programs], cluster: Option<&str>) -> Result<PathBuf, String> {
        choose(found.to_vec(), Path::new("/data/postgres"), cluster.map(str::to_owned))
            .map(|programs| programs.folder)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_answer_of_each_release_is_read() {
        let read = |answer: &str| Version::parse(answer).map(|version| (version.major, version.minor));
        assert_eq!(read("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some((15, 18)));
        assert_eq!(read("postgres (PostgreSQL) 18beta1\n"), Some((18, 0)));
        assert_eq!(read("postgres (PostgreSQL) 9.6.24\n"), Some((9, 6)));
        assert_eq!(read("postgres (EnterpriseDB) 15.1\n"), None);
    }

    #[test]
    fn a_cluster_gets_its_own_version_and_a_new_one_the_first_found() {
        let found = [programs("/a", 17, 2), programs("/b", 15, 4), programs("/c", 13, 0)];
        assert_eq!(chosen(&found, None), Ok("/a".into()));
        assert_eq!(chosen(&found, Some("15")), Ok("/b".into()));
    }

    #[test]
    fn a_cluster_of_a_version_that_is_not_installed_is_refused() {
        let found = [programs("/a", 17, 2), programs("/b", 15, 4)];
        assert_eq!(
            chosen(&found, Some("16")).unwrap_err(),
            "the database in /data/postgres was made by PostgreSQL 16, and only PostgreSQL 17.2 (/a), \
             PostgreSQL 15.4 (/b) was found. Install PostgreSQL 16 beside it, or name the folder of its programs \
             with WAGGLE_EMBEDDED__BIN_DIR, or bring the database to the other version with pg_upgrade"
        );
    }

    #[test]
    fn a_release_before_14_is_refused_by_name() {
        assert_eq!(
            chosen(&[programs("/c", 13, 9)], None).unwrap_err(),
            "PostgreSQL 13.9 (/c) is too old: the embedded database needs PostgreSQL 14 or newer"
        );
    }

    #[tokio::test]
    async fn where_nothing_is_installed_the_error_says_what_to_install() {
        let search = Search { bin_dir: None, places: &[], path: Some(OsStr::new("/nowhere:relative")) };
        let found = search.find().await.unwrap();
        insta::assert_snapshot!(chosen(&found, None).unwrap_err(), @r"
        no PostgreSQL programs were found, and without a database URL the gateway runs its own database with them. Install PostgreSQL 14 or newer:

          Debian, Ubuntu:  apt install postgresql
          Fedora:          dnf install postgresql-server
          Alpine:          apk add postgresql
          macOS:           brew install postgresql@17

        or name the folder that holds `postgres` and `initdb` with WAGGLE_EMBEDDED__BIN_DIR, or set WAGGLE_DATABASE__URL to a database of your own.
        ");
    }

    #[tokio::test]
    async fn well_known_folders_come_newest_first_and_then_the_path() {
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
        let search = Search { bin_dir: None, places: &[place(parent, "pg-", "bin")], path: Some(&path) };
        let found = search.find().await.unwrap().into_iter().map(|programs| programs.folder);
        assert_eq!(found.collect::<Vec<_>>(), [new, old, other]);
    }

    /// Written by another process: while this one has a program open for writing, a child that another test
    /// is just starting may have it open too, and then it cannot be run.
    fn script(path: &Path, line: &str) {
        let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#;
        let status =
            std::process::Command::new("/bin/sh").args(["-c", write, "sh"]).arg(path).arg(line).status();
        assert!(status.unwrap().success());
    }
}
