//! Connections to content from outside: administration, secrets, and what other replicas know of them.

mod admin;
mod commands;
mod dump;
mod floods;
mod hooks;
mod refusals;
mod replicas;
mod secrets;
mod use_of;

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};

/// Files of keys.
pub(crate) struct Keys(TempDir);

impl Keys {
    pub(crate) fn new() -> Self {
        let keys = Self(tempfile::tempdir().unwrap());
        keys.write(&[1]);
        keys
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.path().join("sources.key")
    }

    /// Writes a file whose keys consist of these bytes.
    fn write(&self, keys: &[u8]) {
        Self::write_to(&self.file(), keys);
    }

    fn write_to(file: &Path, keys: &[u8]) {
        let lines: String = keys.iter().map(|byte| STANDARD.encode([*byte; 32]) + "\n").collect();
        // Replaced as a whole: a gateway may read it at any time.
        let unfinished = file.with_extension("new");
        std::fs::write(&unfinished, lines).unwrap();
        std::fs::rename(unfinished, file).unwrap();
    }

    pub(crate) fn replica(&self, database: &Database) -> Builder {
        Builder::new(database).set("WAGGLE_SOURCES__KEY_FILE", self.file().display())
    }
}

/// A gateway with a key for secrets.
async fn gateway() -> (Keys, Database, Replica) {
    let (keys, database) = (Keys::new(), database().await);
    let replica = keys.replica(&database).start().await;
    (keys, database, replica)
}

/// A new connection to an HTTP API.
pub(crate) fn http(id: &str) -> Value {
    json!({"id": id, "kind": "http", "tenants": "*", "settings": {"baseUrl": "http://api.example/v1/"}})
}

fn default_limits() -> Value {
    json!({"timeoutMs": 5_000, "maxBytes": 4_194_304, "concurrent": 16, "perSecond": 50, "burst": 100,
        "pollMs": 30_000})
}
