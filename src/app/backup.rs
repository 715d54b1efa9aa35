//! Backups of a gateway on its embedded database: a folder with a dump of the database and the keys that it needs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use embedded_postgres::Embedded;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use super::AppError;
use super::credentials::write_private;
use super::embedded::{database, options};
use super::signals::Signals;
use crate::config::Settings;
use crate::store::Store;

/// The version of the format.
const FORMAT: u32 = 1;
/// The description of a backup, its dump, and the folder of its keys.
const DESCRIPTION: &str = "backup.json";
const DUMP: &str = "database.dump";
const KEYS: &str = "keys";
/// The interval at which the size of the dump is checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The key files of a data directory.
const KEY_FILES: [&str; 4] = ["operator.key", "audit.key", "sources.key", "demo.key"];

/// What a backup holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Backup {
    format: u32,
    /// The version of the gateway that wrote it.
    pub waggle: String,
    /// When the snapshot of the database was taken.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// The names of the key files in it.
    pub keys: Vec<String>,
    /// Key files that are elsewhere, and not in it.
    pub elsewhere: Vec<PathBuf>,
}

/// Writes a backup to a new folder that only its owner can read, while the gateway serves or not. Gives up once the dump has
/// not grown for `stall`: `pg_dump` waits for a server that does not answer without a timeout.
///
/// # Errors
/// If the database is not the embedded one, the folder exists, or anything fails: then there is no folder.
pub async fn backup(
    settings: &Settings,
    folder: &Path,
    with_keys: bool,
    stall: Duration,
) -> Result<Backup, AppError> {
    refuse_external(settings)?;
    if folder.try_exists().map_err(|error| failed(folder, error))? {
        return Err(AppError::Exists(folder.display().to_string()));
    }
    let draft = draft_of(folder);
    let dump = draft.join(DUMP);
    let mut signals = Signals::handle().map_err(AppError::Signals)?;
    let written = tokio::select! {
        written = write(settings, &draft, with_keys) => written,
        () = signals.stop() => Err(AppError::Interrupted),
        () = stalled(&dump, stall) => Err(AppError::Stalled(stall.as_secs())),
    };
    let published = written.and_then(|backup| {
        fs::rename(&draft, folder).map_err(|error| failed(folder, error))?;
        Ok(backup)
    });
    discard_if_failed(&draft, published)
}

/// Waits until a file has not grown for this long.
async fn stalled(file: &Path, stall: Duration) {
    let length = || fs::metadata(file).map(|found| found.len()).ok();
    let (mut last, mut since) = (length(), Instant::now());
    while since.elapsed() < stall {
        sleep(CHECK_EVERY.min(stall)).await;
        let now = length();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}

async fn write(settings: &Settings, draft: &Path, with_keys: bool) -> Result<Backup, AppError> {
    let private = |folder: &Path| fs::DirBuilder::new().mode(0o700).create(folder);
    private(draft).map_err(|error| failed(draft, error))?;
    let created_at = OffsetDateTime::now_utc();
    let dump = new_file(&draft.join(DUMP))?;
    Embedded::dump(options(settings), dump.try_clone().map_err(|error| failed(draft, error))?).await?;
    dump.sync_all().map_err(|error| failed(draft, error))?;
    let mut keys = Vec::new();
    if with_keys {
        let folder = draft.join(KEYS);
        private(&folder).map_err(|error| failed(&folder, error))?;
        for name in KEY_FILES {
            if copy(&settings.embedded.data_dir.join(name), &folder.join(name))? {
                keys.push(name.to_owned());
            }
        }
    }
    let configured =
        [&settings.admin.operator_keys_file, &settings.audit.signing_key_file, &settings.sources.key_file];
    let elsewhere = configured.into_iter().flatten().cloned().collect();
    let waggle = env!("CARGO_PKG_VERSION").to_owned();
    let backup = Backup { format: FORMAT, waggle, created_at, keys, elsewhere };
    let text = serde_json::to_string_pretty(&backup).map_err(io::Error::from);
    write_private(&draft.join(DESCRIPTION), &text.map_err(|error| failed(draft, error))?)?;
    Ok(backup)
}

/// Restores a backup into the data directory of the settings, which must be empty or missing.
///
/// # Errors
/// If the database is not the embedded one, the data directory holds anything, or the folder is not a whole backup: then
/// the data directory stays as it was.
pub async fn restore(settings: &Settings, folder: &Path) -> Result<Backup, AppError> {
    refuse_external(settings)?;
    let data_dir = &settings.embedded.data_dir;
    if !is_empty(data_dir).map_err(|error| failed(data_dir, error))? {
        return Err(AppError::NotEmpty(data_dir.display().to_string()));
    }
    let description = folder.join(DESCRIPTION);
    let text = fs::read_to_string(&description).map_err(|error| failed(&description, error))?;
    let wrong = |reason: String| AppError::NotABackup(folder.display().to_string(), reason);
    let backup: Backup = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if backup.format != FORMAT {
        return Err(wrong(format!("its format is {}, expected {FORMAT}", backup.format)));
    }
    if let Some(name) = backup.keys.iter().find(|name| !KEY_FILES.contains(&name.as_str())) {
        return Err(wrong(format!("unknown key file {name}")));
    }
    let dump = folder.join(DUMP);
    let dump = File::open(&dump).map_err(|error| failed(&dump, error))?;
    let draft = draft_of(data_dir);
    let mut signals = Signals::handle().map_err(AppError::Signals)?;
    let filled = tokio::select! {
        filled = fill(settings, &draft, dump, (folder, &backup)) => filled,
        () = signals.stop() => Err(AppError::Interrupted),
    };
    let published =
        filled.and_then(|()| fs::rename(&draft, data_dir).map_err(|error| failed(data_dir, error)));
    discard_if_failed(&draft, published.map(|()| backup))
}

/// Makes a data directory of a backup.
async fn fill(
    settings: &Settings,
    draft: &Path,
    dump: File,
    (folder, backup): (&Path, &Backup),
) -> Result<(), AppError> {
    let mut settings = settings.clone();
    settings.embedded.data_dir = draft.to_owned();
    let (store, embedded) = database(&settings).await?;
    if let Some(embedded) = embedded {
        let restored = match embedded.restore(dump).await {
            Ok(()) => {
                let store = Store::new(store);
                let renewed = store.renew_epoch().await;
                store.close().await;
                renewed.map_err(AppError::from)
            }
            Err(error) => Err(error.into()),
        };
        embedded.stop().await;
        restored?;
    }
    for name in &backup.keys {
        let from = folder.join(KEYS).join(name);
        if !copy(&from, &draft.join(name))? {
            return Err(failed(&from, ErrorKind::NotFound.into()));
        }
    }
    Ok(())
}

/// Only the embedded database is copied here: that of others has its own means.
fn refuse_external(settings: &Settings) -> Result<(), AppError> {
    if settings.database.url.is_some() { Err(AppError::ExternalDatabase) } else { Ok(()) }
}

/// A new path beside another, which is renamed to it once it is complete.
fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".unfinished-{:016x}", rand::random::<u64>()));
    path.with_file_name(name)
}

/// Removes a draft that did not become what it should.
fn discard_if_failed<T>(draft: &Path, done: Result<T, AppError>) -> Result<T, AppError> {
    if done.is_err() {
        // It may not exist yet.
        fs::remove_dir_all(draft).ok();
    }
    done
}

/// Whether a directory is missing or holds nothing.
fn is_empty(folder: &Path) -> io::Result<bool> {
    match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Copies a file that only its owner can read; returns whether it exists.
fn copy(from: &Path, to: &Path) -> Result<bool, AppError> {
    match File::open(from) {
        Ok(mut source) => {
            let mut target = new_file(to)?;
            let copied = io::copy(&mut source, &mut target).and_then(|_| target.sync_all());
            copied.map(|()| true).map_err(|error| failed(to, error))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(from, error)),
    }
}

fn new_file(path: &Path) -> Result<File, AppError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path).map_err(|error| failed(path, error))
}

fn failed(path: &Path, error: io::Error) -> AppError {
    AppError::File(path.display().to_string(), error)
}
