//! Keys that live in files of the data directory: the operator's and the demo's.

use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::AppError;
use crate::config::Settings;
use crate::model::key::{KeyHash, KeyKind, SecretKey};
use crate::model::sources::Sources;

/// The hash of the operator's key: the configured one; on the private database else the one in `operator.key`, made
/// at the first start. The lock on the data directory, held since the private database runs, keeps a second gateway
/// from making another.
pub(super) fn operator(settings: &Settings, embedded: bool, sources: &Sources) -> Result<KeyHash, AppError> {
    match &settings.admin.operator_key {
        Some(key) => Ok(key.hash()),
        None if embedded => own_operator(&settings.embedded.data_dir.join("operator.key"), sources),
        None => Err(AppError::NoOperatorKey),
    }
}

fn own_operator(file: &Path, sources: &Sources) -> Result<KeyHash, AppError> {
    if let Some(key) = read(file)? {
        return Ok(key.hash());
    }
    let key = SecretKey::generate(KeyKind::Operator, &mut sources.csprng()?);
    write(file, &key)?;
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A terminal that is gone misses nothing: the file has the key.
        let _ = writeln!(terminal, "operator key (shown once, kept in {}): {}", file.display(), key.reveal());
    }
    Ok(key.hash())
}

/// The key that a file holds, if there is such a file.
pub(super) fn read(file: &Path) -> Result<Option<SecretKey>, AppError> {
    let named = || file.display().to_string();
    match fs::read_to_string(file) {
        Ok(text) => SecretKey::parse(text.trim()).map(Some).map_err(|error| AppError::Key(named(), error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(AppError::File(named(), error)),
    }
}

/// Writes a key for its owner's eyes only, whole or not at all.
pub(super) fn write(file: &Path, key: &SecretKey) -> Result<(), AppError> {
    write_private(file, &format!("{}\n", key.reveal()))
}

/// Writes a file that only its owner may read, whole or not at all.
pub(super) fn write_private(file: &Path, text: &str) -> Result<(), AppError> {
    let failed = |error| AppError::File(file.display().to_string(), error);
    // Beside a configured database nobody has made the data directory yet.
    file.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    let unfinished = file.with_extension("new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut writer = options.open(&unfinished).map_err(failed)?;
    writer.write_all(text.as_bytes()).and_then(|()| writer.sync_all()).map_err(failed)?;
    fs::rename(&unfinished, file).map_err(failed)
}
