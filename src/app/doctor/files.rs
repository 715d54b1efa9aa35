//! Checks of the files and directories that the settings name, beyond those that a start requires.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[cfg(target_os = "linux")]
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;

use crate::app::diagnosis::Diagnosis;
use crate::app::files::FileProblem;
use crate::app::signing;
use crate::config::Settings;

/// The free bytes below which the spill directory is nearly full.
const LOW_DISK: u64 = 1 << 30;
/// Checks the files and directories, given the problems that were found by the list of all.
pub(super) fn check(found: &mut Diagnosis, settings: &Settings, problems: &[FileProblem]) {
    for FileProblem { setting, problem, .. } in problems.iter().filter(|problem| !problem.prevents_start) {
        found.warn(setting, problem.clone(), "the gateway starts; what the setting is for fails");
    }
    check_modes(found, settings);
    if !signing::is_configured(settings) {
        let remedy = "waggle audit key --new creates a key in the file that it names; see docs/audit.md";
        found.warn("audit.signing_key_file", "not set: the audit log is not signed", remedy);
    }
    check_spill(found, settings);
}

/// Whether files with secrets are readable by others.
fn check_modes(found: &mut Diagnosis, settings: &Settings) {
    let files = [
        ("admin.operator_keys_file", settings.admin.operator_keys_file.as_deref()),
        ("sources.key_file", settings.sources.key_file.as_deref()),
        ("audit.signing_key_file", settings.audit.signing_key_file.as_deref()),
        ("server.tls_key", settings.server.tls_key.as_deref()),
    ];
    for (setting, file) in files {
        // A missing file is in the list of problems, unless the first start creates it.
        let Some((file, metadata)) = file.and_then(|file| Some((file, fs::metadata(file).ok()?))) else {
            continue;
        };
        let mode = metadata.mode() & 0o777;
        let message = format!("{} has the mode {mode:04o}", file.display());
        found.judge(setting, mode & 0o077 != 0, message, "others can read the secret; chmod 600 it");
    }
}

/// Whether the audit log survives in the spill directory while the database is unreachable: one line, with the first of
/// what is wrong.
fn check_spill(found: &mut Diagnosis, settings: &Settings) {
    let setting = "audit.spill_dir";
    let configured = settings.audit.spill_dir.as_deref();
    let own = settings.embedded.data_dir.join("audit");
    let directory = configured.unwrap_or(&own);
    let name = directory.display();
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let free = statvfs(existing).ok();
    let free = free.map(|disk| disk.blocks_available().saturating_mul(disk.fragment_size()));
    let space = free.map_or_else(|| name.to_string(), |free| format!("{} MiB free for {name}", free >> 20));
    if free.is_some_and(|free| free < LOW_DISK) {
        let remedy = "the audit log is kept there while the database is unreachable; free space";
        found.warn(setting, space, remedy);
    } else if let Some(what) = volatile(existing) {
        let remedy = "use a durable volume: audit rows are kept there while the database is unreachable";
        found.warn(setting, format!("{space}, which is {what}"), remedy);
    } else if configured.is_none() && settings.database.url.is_some() {
        let message = format!("not set; {space}, which is used if it can be created");
        found.warn(setting, message, "set it to a directory that outlives the process");
    } else if configured.is_some() && !directory.exists() {
        let message = format!("{space}, which does not exist; it is created at the start");
        found.warn(setting, message, "mount it, if it is meant to be a volume");
    } else {
        found.ok(setting, space);
    }
}

/// What kind of file system a path is on, if that ends with the machine or the container.
#[cfg(target_os = "linux")]
fn volatile(path: &Path) -> Option<&'static str> {
    match statfs(path).ok()?.filesystem_type() {
        TMPFS_MAGIC => Some("in memory (tmpfs)"),
        OVERLAYFS_SUPER_MAGIC => Some("in the layer of a container (overlayfs)"),
        _ => None,
    }
}

/// The kinds of file systems of other operating systems are not known.
#[cfg(not(target_os = "linux"))]
const fn volatile(_: &Path) -> Option<&'static str> {
    None
}
