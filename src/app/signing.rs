//! The signing key of the audit log: a file outside the database.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::AppError;
use super::credentials::write_private;
use super::directory::check_directory;
use crate::config::Settings;
use crate::model::audit::signature::Signer;
use crate::model::system::System;

/// The path of the key: the configured file, or `audit.key` in the data directory of the embedded database.
fn file(settings: &Settings) -> Option<PathBuf> {
    let own = || settings.embedded.data_dir.join("audit.key");
    settings.audit.signing_key_file.clone().or_else(|| settings.database.url.is_none().then(own))
}

/// The settings of a gateway on its embedded database, whose key is generated at the first start.
pub(super) fn with_own_key(mut settings: Settings, system: &System) -> Result<Settings, AppError> {
    let Some(file) = file(&settings) else { return Ok(settings) };
    if !file.try_exists().map_err(|error| AppError::File(file.display().to_string(), error))? {
        write_private(&file, &generate(system)?)?;
        tracing::info!(file = %file.display(), "audit signing key created");
    }
    settings.audit.signing_key_file = Some(file);
    Ok(settings)
}

/// Whether a start finds the key, or can create it.
pub(super) fn check(settings: &Settings) -> Result<(), String> {
    let Some(file) = file(settings) else { return Ok(()) };
    let missing =
        |error: &AppError| matches!(error, AppError::File(_, error) if error.kind() == ErrorKind::NotFound);
    match read(&file) {
        // That of the data directory is created with it.
        Err(error) if settings.database.url.is_none() && missing(&error) => {
            let parent = file.parent().filter(|_| settings.audit.signing_key_file.is_some());
            parent.map_or(Ok(()), check_directory)
        }
        text => text.and_then(|text| parse(&file, &text)).map(drop).map_err(|error| error.to_string()),
    }
}

/// Whether the audit log is signed.
pub(super) fn is_configured(settings: &Settings) -> bool {
    file(settings).is_some()
}

/// The configured key, if any.
pub(super) fn signer(settings: &Settings) -> Result<Option<Arc<Signer>>, AppError> {
    let file = settings.audit.signing_key_file.as_deref();
    file.map(|file| Ok(Arc::new(parse(file, &read(file)?)?))).transpose()
}

/// The public key of the signing key. With `replace`, a new key is generated, which signs from the next start on; it is
/// prepended to the file, and the newest of the previous keys signs the new one.
///
/// # Errors
/// If there is no key, or the file cannot be read or written.
pub fn audit_key(settings: &Settings, replace: bool) -> Result<String, AppError> {
    let file = file(settings).ok_or(AppError::NoSigningKeyFile)?;
    if replace {
        let before = match read(&file) {
            Err(AppError::File(_, error)) if error.kind() == ErrorKind::NotFound => String::new(),
            before => before?,
        };
        let text = generate(&System::real())? + &before;
        // The file is not replaced by one that a start would refuse.
        parse(&file, &text)?;
        write_private(&file, &text)?;
    }
    Ok(parse(&file, &read(&file)?)?.public().to_string())
}

fn generate(system: &System) -> Result<String, AppError> {
    let mut private = [0; 32];
    system.random.fill(&mut private)?;
    Ok(Signer::pem(&private))
}

fn read(file: &Path) -> Result<String, AppError> {
    fs::read_to_string(file).map_err(|error| AppError::File(file.display().to_string(), error))
}

fn parse(file: &Path, text: &str) -> Result<Signer, AppError> {
    Signer::parse(text.as_bytes()).map_err(|error| AppError::SigningKey(file.display().to_string(), error))
}
