//! The file of the keys that secrets of connections are encrypted under. On the embedded database it is created at the
//! first start.

use std::path::PathBuf;

use super::AppError;
use super::credentials::write_private;
use crate::config::Settings;
use crate::model::sources::Sources;
use crate::sources::secrets::{KEY_BYTES, KeyRing};
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

/// Creates the file of a gateway on its embedded database, unless something is encrypted already: then it is lost, and a new
/// key would hide that.
pub(super) async fn create_own(
    settings: &Settings,
    store: &Store,
    sources: &Sources,
) -> Result<(), AppError> {
    let Some(file) = settings.sources.key_file.as_ref().filter(|file| **file == own_file(settings)) else {
        return Ok(());
    };
    let exists = file.try_exists().map_err(|error| AppError::File(file.display().to_string(), error))?;
    if exists || store.secret_of_other_key(&[]).await?.is_some() {
        return Ok(());
    }
    let mut key = [0; KEY_BYTES];
    sources.random.fill(&mut key)?;
    write_private(file, &KeyRing::line(&key))?;
    tracing::info!(file = %file.display(), "key for secrets of connections created");
    Ok(())
}
