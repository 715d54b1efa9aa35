//! Which user PostgreSQL runs as: the gateway's own, or `postgres` when that is root.

use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::{User, geteuid};
use tokio::process::Command;
use tokio::time::timeout;

use super::error::{Doing, EmbeddedError};

/// PostgreSQL refuses to run as root. `nobody` would be wrong: whatever else runs as it could read the database.
const INSTEAD_OF_ROOT: &str = "postgres";
const REACH_DEADLINE: Duration = Duration::from_secs(10);
/// Prints the index of the first argument that the user may not enter or run.
const FIRST_SHUT: &str = r#"i=0; for path; do [ -x "$path" ] || { echo "$i"; exit; }; i=$((i+1)); done"#;

/// The user that PostgreSQL runs as.
#[derive(Debug, Clone)]
pub(super) struct Account {
    /// Set when it is another than the gateway's.
    other: Option<User>,
}

impl Account {
    /// The gateway's own user, or the one that stands in for root.
    pub(super) fn fitting() -> Result<Self, EmbeddedError> {
        if geteuid().is_root() { Self::named(INSTEAD_OF_ROOT) } else { Ok(Self { other: None }) }
    }

    fn named(name: &str) -> Result<Self, EmbeddedError> {
        match User::from_name(name) {
            Ok(Some(user)) => Ok(Self { other: Some(user) }),
            Ok(None) => Err(EmbeddedError::NoUser(name.to_owned())),
            Err(error) => Err(std::io::Error::from(error)).doing("look up the user", Path::new(name)),
        }
    }

    /// Whether it is another user than the gateway's.
    pub(super) fn is_other(&self) -> bool {
        self.other.is_some()
    }

    /// The user's number.
    pub(super) fn uid(&self) -> u32 {
        self.other.as_ref().map_or_else(|| geteuid().as_raw(), |user| user.uid.as_raw())
    }

    /// Lets `command` run as this user.
    pub(super) fn run(&self, command: &mut Command) {
        if let Some(user) = &self.other {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
    }

    /// Makes this user the owner of `path`, which the gateway has just created.
    pub(super) fn own(&self, path: &Path) -> Result<(), EmbeddedError> {
        let Some(user) = &self.other else { return Ok(()) };
        lchown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).doing("change the owner of", path)
    }

    /// Fails with the first folder that keeps this user from entering or running one of `wanted`.
    ///
    /// The question is put to the operating system as that user, because permission bits alone do not tell.
    pub(super) async fn reaches(&self, wanted: &[&Path]) -> Result<(), EmbeddedError> {
        let Some(user) = &self.other else { return Ok(()) };
        let way = |path: &'_ Path| path.ancestors().map(Path::to_owned).collect::<Vec<PathBuf>>();
        let steps: Vec<(PathBuf, &Path)> =
            wanted.iter().flat_map(|path| way(path).into_iter().rev().map(|step| (step, *path))).collect();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", FIRST_SHUT, "sh"]).args(steps.iter().map(|(step, _)| step));
        command.current_dir("/").env_clear().stdin(Stdio::null()).kill_on_drop(true);
        self.run(&mut command);
        let output = timeout(REACH_DEADLINE, command.output()).await.unwrap_or_else(|late| Err(late.into()));
        let output = output.doing("run as the user `postgres`", Path::new("/bin/sh"))?;
        let shut = String::from_utf8_lossy(&output.stdout).trim().parse::<usize>().ok();
        match shut.and_then(|index| steps.get(index)) {
            None => Ok(()),
            Some((at, wanted)) => Err(EmbeddedError::Unreachable {
                user: user.name.clone(),
                at: at.clone(),
                wanted: wanted.to_path_buf(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_user_is_named_and_never_replaced_by_nobody() {
        assert_eq!(
            Account::named("waggle-none").unwrap_err().to_string(),
            "PostgreSQL refuses to run as root, and the user `waggle-none` that it would run as does not \
             exist. Create it (Debian, Fedora: useradd --system waggle-none; Alpine: adduser -S waggle-none), or \
             start the gateway as another user than root"
        );
    }
}
