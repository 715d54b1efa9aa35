//! The file of the keys that secrets of connections are encrypted under. On the embedded database it is created at the
//! first start.

use std::io::ErrorKind;
use std::path::PathBuf;

use super::AppError;
use super::credentials::write_private;
use crate::config::Settings;
use crate::model::system::System;
use crate::sources::secrets::{KEY_BYTES, KeyFileError, KeyRing};
use crate::store::Store;

/// The file of a gateway on its embedded database, unless another is configured.
fn own_file(settings: &Settings) -> PathBuf {
    settings.embedded.data_dir.join("sources.key")
}

/// The settings of a gateway on its embedded database.
pub(super) fn with_own_file(mut settings: Settings) -> Settings {
    let own = own_file(&settings);
    settings.sources.key_file.get_or_insert(own);
    settings
}

/// Whether a start finds the keys, or can create one.
pub(super) fn check(settings: &Settings) -> Result<(), KeyFileError> {
    let (own, is_embedded) = (own_file(settings), settings.database.url.is_none());
    let Some(file) = settings.sources.key_file.as_ref().or_else(|| is_embedded.then_some(&own)) else {
        return Ok(());
    };
    match KeyRing::read(file) {
        Err(KeyFileError::Unreadable(_, error))
            if is_embedded && *file == own && error.kind() == ErrorKind::NotFound =>
        {
            Ok(())
        }
        read => read.map(drop),
    }
}

/// Creates the file of a gateway on its embedded database, unless something is encrypted already: then it is lost, and a new
/// key would hide that.
pub(super) async fn create_own(settings: &Settings, store: &Store, system: &System) -> Result<(), AppError> {
    let own = settings.sources.key_file.as_ref().filter(|file| **file == own_file(settings));
    let Some(file) = own.filter(|_| settings.database.url.is_none()) else { return Ok(()) };
    let exists = file.try_exists().map_err(|error| AppError::File(file.display().to_string(), error))?;
    if exists || store.secret_of_other_key(&[]).await?.is_some() {
        return Ok(());
    }
    let mut key = [0; KEY_BYTES];
    system.random.fill(&mut key)?;
    write_private(file, &KeyRing::line(&key))?;
    tracing::info!(file = %file.display(), "key for secrets of connections created");
    Ok(())
}
