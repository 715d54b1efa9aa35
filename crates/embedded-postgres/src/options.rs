//! The options of an embedded database.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::EmbeddedError;

/// The maximum length of a name, in bytes: the path of a Unix socket is short.
const MAX_NAME_BYTES: usize = 24;

/// The options of an embedded database.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Names the database, the cluster's only role and the socket's directory: at most 24 lower-case letters, digits and
    /// `_`, a letter first. A cluster keeps the name that it was created with.
    pub name: String,
    /// The directory of all persistent files; created if it is missing.
    pub data_dir: PathBuf,
    /// The directory of the programs `postgres` and `initdb`; searched for if `None`.
    pub bin_dir: Option<PathBuf>,
    /// Whether a commit survives a crash of the machine. `false` is for tests, and faster.
    pub durable: bool,
    /// The value of `PATH`, searched last for the programs.
    pub path: Option<OsString>,
    /// The value of `XDG_RUNTIME_DIR`, which holds the socket's directory if its user runs the server; otherwise
    /// `/tmp` does.
    pub runtime_dir: Option<PathBuf>,
    /// Timeouts and sizes.
    pub limits: EmbeddedLimits,
}

impl EmbeddedOptions {
    /// A durable database in `data_dir` with default limits, without `PATH` and `XDG_RUNTIME_DIR`.
    pub fn new(name: impl Into<String>, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            data_dir: data_dir.into(),
            bin_dir: None,
            durable: true,
            path: None,
            runtime_dir: None,
            limits: EmbeddedLimits::default(),
        }
    }

    /// Checks the name, which is part of SQL and of a path.
    pub(super) fn check_name(&self) -> Result<(), EmbeddedError> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let starts = self.name.starts_with(|c: char| c.is_ascii_lowercase());
        if starts && self.name.len() <= MAX_NAME_BYTES && self.name.chars().all(allowed) {
            return Ok(());
        }
        Err(EmbeddedError::InvalidName(self.name.clone()))
    }
}

/// Timeouts and sizes of an embedded database.
#[derive(Debug, Clone)]
pub struct EmbeddedLimits {
    /// How long creating the cluster may take.
    pub create: Duration,
    /// How long the server may take to accept connections, including recovery after a crash.
    pub ready: Duration,
    /// How long to wait for the server of an earlier process to exit.
    pub predecessor: Duration,
    /// How long a fast shutdown may take; after it an immediate shutdown may take as long, then the server is killed.
    /// Whole seconds, at least 1.
    pub shutdown: Duration,
    /// How many connections the server accepts.
    pub max_connections: u16,
}

impl Default for EmbeddedLimits {
    fn default() -> Self {
        Self {
            create: Duration::from_mins(1),
            ready: Duration::from_mins(1),
            predecessor: Duration::from_secs(15),
            shutdown: Duration::from_secs(8),
            max_connections: 100,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EmbeddedOptions;

    #[test]
    fn only_names_that_are_plain_identifiers_are_accepted() {
        let accepted = |name: &str| EmbeddedOptions::new(name, "/data").check_name().is_ok();
        assert!(accepted("a") && accepted("notes_2"));
        for name in ["", "_a", "2a", "Notes", "a-b", "a\"b", "ä", &"a".repeat(25)] {
            assert!(!accepted(name), "{name}");
        }
    }
}
