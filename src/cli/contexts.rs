//! The file of contexts: gateways by name, each with the key that is sent to it. Only its owner may read it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::output::Failure;
use crate::config::Environment;

/// The bytes of the file.
const MAX_BYTES: u64 = 1 << 20;

/// A gateway and a key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Context {
    pub(super) url: String,
    pub(super) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cacert: Option<PathBuf>,
}

/// All contexts.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contexts {
    /// The name of the one in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<String>,
    #[serde(default)]
    pub(super) contexts: BTreeMap<String, Context>,
}

impl Contexts {
    /// Refuses an unknown name.
    pub(super) fn check(&self, name: &str) -> Result<(), Failure> {
        if self.contexts.contains_key(name) { Ok(()) } else { Err(unknown(name)) }
    }

    /// Takes a context out.
    pub(super) fn take(&mut self, name: &str) -> Result<Context, Failure> {
        self.contexts.remove(name).ok_or_else(|| unknown(name))
    }

    /// Takes out the one in use, if any.
    pub(super) fn take_current(&mut self) -> Result<Option<Context>, Failure> {
        self.current.clone().map(|name| self.take(&name)).transpose()
    }
}

fn unknown(name: &str) -> Failure {
    Failure::Usage(format!("unknown context {name}; waggle context list names them"))
}

/// Reads the file; without one there are none.
pub(super) fn read(environment: &Environment) -> Result<Contexts, Failure> {
    let Some(path) = environment.contexts_file() else { return Ok(Contexts::default()) };
    let shown = || path.display().to_string();
    let failed = |error| Failure::Input(shown(), error);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Contexts::default());
        }
        Err(error) => return Err(failed(error)),
    };
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        let wrong = "holds keys and can be read by others; run chmod 600";
        return Err(Failure::Usage(format!("{}: {wrong}", shown())));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    // The error's own text would repeat the line, which may hold a key.
    toml::from_str(&text)
        .map_err(|error: toml::de::Error| Failure::InvalidInput(shown(), error.message().to_owned()))
}

/// Replaces the file, in one step.
pub(super) fn write(environment: &Environment, contexts: &Contexts) -> Result<(), Failure> {
    let path = environment.contexts_file().ok_or_else(|| {
        Failure::Usage(
            "WAGGLE_CONTEXTS is not set, and neither is HOME; expected the file of contexts".to_owned(),
        )
    })?;
    let failed = |error| Failure::File(path.display().to_string(), error);
    let text = toml::to_string(contexts).map_err(|error| Failure::Usage(error.to_string()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    if !folder.as_os_str().is_empty() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    let draft = path.with_extension(format!("{:016x}", rand::random::<u64>()));
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(&draft);
    let written = created.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let placed = written.and_then(|()| fs::rename(&draft, &path));
    placed.map_err(|error| {
        // What could not be written is of no use.
        fs::remove_file(&draft).ok();
        failed(error)
    })
}
