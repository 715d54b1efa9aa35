//! The user that PostgreSQL runs as: the owner's, or `postgres` if that is root.

use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::{User, geteuid};
use tokio::process::Command;
use tokio::time::timeout;

use crate::error::{EmbeddedError, IoContext};

/// PostgreSQL refuses to run as root. Not `nobody`: other services run as that user and could read the database.
const INSTEAD_OF_ROOT: &str = "postgres";
const REACH_DEADLINE: Duration = Duration::from_secs(10);
/// Prints the index of the first argument that the user may not execute.
const FIRST_DENIED: &str = r#"i=0; for path; do [ -x "$path" ] || { echo "$i"; exit; }; i=$((i+1)); done"#;

/// The user that PostgreSQL runs as.
#[derive(Debug, Clone)]
pub(super) struct Account {
    /// `None` for the user of this process.
    other: Option<User>,
}

impl Account {
    /// The user of this process, or `postgres` for root.
    pub(super) fn select() -> Result<Self, EmbeddedError> {
        if geteuid().is_root() { Self::named(INSTEAD_OF_ROOT) } else { Ok(Self { other: None }) }
    }

    fn named(name: &str) -> Result<Self, EmbeddedError> {
        match User::from_name(name) {
            Ok(Some(user)) => Ok(Self { other: Some(user) }),
            Ok(None) => Err(EmbeddedError::NoUser(name.to_owned())),
            Err(error) => Err(std::io::Error::from(error)).context("look up the user", Path::new(name)),
        }
    }

    /// Whether it is another user than that of this process.
    pub(super) fn is_other(&self) -> bool {
        self.other.is_some()
    }

    /// The user's id.
    pub(super) fn uid(&self) -> u32 {
        self.other.as_ref().map_or_else(|| geteuid().as_raw(), |user| user.uid.as_raw())
    }

    /// Makes `command` run as this user.
    pub(super) fn run(&self, command: &mut Command) {
        if let Some(user) = &self.other {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
    }

    /// Makes this user the owner of `path`, which was just created.
    pub(super) fn own(&self, path: &Path) -> Result<(), EmbeddedError> {
        let Some(user) = &self.other else { return Ok(()) };
        lchown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).context("change the owner of", path)
    }

    /// Checks that this user can execute all of `wanted` and pass through their parents.
    ///
    /// A process of that user checks it, since permission bits alone do not decide.
    pub(super) async fn reaches(&self, wanted: &[&Path]) -> Result<(), EmbeddedError> {
        let Some(user) = &self.other else { return Ok(()) };
        let way = |path: &'_ Path| path.ancestors().map(Path::to_owned).collect::<Vec<PathBuf>>();
        let steps: Vec<(PathBuf, &Path)> =
            wanted.iter().flat_map(|path| way(path).into_iter().rev().map(|step| (step, *path))).collect();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", FIRST_DENIED, "sh"]).args(steps.iter().map(|(step, _)| step));
        command.current_dir("/").env_clear().stdin(Stdio::null()).kill_on_drop(true);
        self.run(&mut command);
        let output = timeout(REACH_DEADLINE, command.output()).await.unwrap_or_else(|late| Err(late.into()));
        let output = output.context("run as the user `postgres`", Path::new("/bin/sh"))?;
        let denied = String::from_utf8_lossy(&output.stdout).trim().parse::<usize>().ok();
        match denied.and_then(|index| steps.get(index)) {
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
    fn a_missing_user_is_reported_by_name() {
        assert_eq!(
            Account::named("no-such-user").unwrap_err().to_string(),
            "PostgreSQL refuses to run as root, and the user `no-such-user` to run it as does not exist; create it \
             (Debian, Fedora: useradd --system no-such-user; Alpine: adduser -S no-such-user), or start as another \
             user than root"
        );
    }
}
