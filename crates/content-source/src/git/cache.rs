//! The directory of clones, and its budget.
//!
//! Each clone has a directory and a file that is locked: shared by what uses the clone, exclusively by what removes it. The
//! time of the lock file is that of the last use.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::objects::size;
use crate::error::FetchError;

/// A clone may not be removed while a lease of it exists.
pub(super) struct Lease {
    _lock: File,
}

/// A clone in the cache.
pub(super) struct Slot {
    pub(super) directory: PathBuf,
    lock: PathBuf,
}

impl Slot {
    pub(super) fn new(cache: &Path, key: &str) -> Self {
        Self { directory: cache.join(format!("{key}.git")), lock: cache.join(format!("{key}.lock")) }
    }

    fn open_lock(&self) -> Result<File, FetchError> {
        if let Some(cache) = self.lock.parent() {
            fs::create_dir_all(cache).map_err(|_| FetchError::Unreachable)?;
        }
        let file = File::options().create(true).truncate(false).write(true).open(&self.lock);
        file.map_err(|_| FetchError::Unreachable)
    }

    /// Waits until the clone is not being removed, and marks it used.
    pub(super) fn lease(&self) -> Result<Lease, FetchError> {
        let lock = self.open_lock()?;
        lock.lock_shared().map_err(|_| FetchError::Unreachable)?;
        lock.set_modified(SystemTime::now()).ok();
        Ok(Lease { _lock: lock })
    }

    /// Removes the clone unless it is used. Returns whether it is gone.
    pub(super) fn remove(&self) -> bool {
        // The lock file stays: another process may wait for it.
        let lock = self.open_lock().ok().filter(|lock| lock.try_lock().is_ok());
        lock.is_some() && (fs::remove_dir_all(&self.directory).is_ok() || !self.directory.exists())
    }
}

/// Removes the clones that were not used for longest until all together are within a budget. One that is used stays.
pub(super) fn evict(cache: &Path, budget: u64) {
    let Ok(entries) = cache.read_dir() else { return };
    let key = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        Some(name.strip_suffix(".git")?.to_owned())
    };
    let measure = |key: String| {
        let slot = Slot::new(cache, &key);
        let used = fs::metadata(&slot.lock).and_then(|found| found.modified());
        (used.unwrap_or(SystemTime::UNIX_EPOCH), size(&slot.directory), slot)
    };
    let mut clones: Vec<_> = entries.flatten().filter_map(|entry| key(entry.path())).map(measure).collect();
    clones.sort_by_key(|(used, ..)| *used);
    let mut total: u64 = clones.iter().map(|(_, size, _)| size).sum();
    for (_, size, slot) in clones {
        if total <= budget {
            return;
        }
        if slot.remove() {
            total = total.saturating_sub(size);
        }
    }
}
