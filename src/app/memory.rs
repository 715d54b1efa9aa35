//! The memory of all caches: as set, or a quarter of what the process may use.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::Settings;

/// Caches may take the memory divided by this: the rest is for requests, and for the allocator and the page cache.
const MEMORY_DIVISOR: u64 = 4;
/// The budget if the memory is not known.
const FALLBACK_BYTES: u64 = 256 << 20;
/// The minimum budget, however little memory there is.
const MIN_BYTES: u64 = 16 << 20;

/// A bound on the memory of the process, and the file that states it.
#[derive(Debug, PartialEq, Eq)]
struct Bound {
    bytes: u64,
    source: PathBuf,
}

/// The bytes of the budget of all caches, which are logged with their source.
pub(super) fn cache_bytes(settings: &Settings) -> u64 {
    if let Some(bytes) = settings.cache.bytes {
        tracing::info!(bytes, source = "cache.bytes", "memory of caches");
        return bytes;
    }
    if let Some(Bound { bytes: available, source }) = smallest_bound(Path::new("/")) {
        let bytes = (available / MEMORY_DIVISOR).max(MIN_BYTES);
        tracing::info!(bytes, available, source = %source.display(), "memory of caches");
        return bytes;
    }
    tracing::warn!(bytes = FALLBACK_BYTES, "memory of the process not known; set cache.bytes");
    FALLBACK_BYTES
}

/// The smallest bound of the control groups (cgroups) of the process, of versions 1 and 2, of all their parents, and of the machine.
fn smallest_bound(root: &Path) -> Option<Bound> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut bounds: Vec<_> = groups.lines().flat_map(|line| bounds_of_group(root, line)).collect();
    let memory = root.join("proc/meminfo");
    bounds.extend(total(&memory).map(|bytes| Bound { bytes, source: memory }));
    bounds.into_iter().min_by_key(|bound| bound.bytes)
}

/// The bounds of a line of `/proc/self/cgroup`, such as `0::/system.slice/waggle.service` or `4:memory:/docker/1f2e`. Inside
/// of a container the path may be one of the host, so that only the root exists.
fn bounds_of_group(root: &Path, line: &str) -> Vec<Bound> {
    let mut members = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (members.next(), members.next()) else { return Vec::new() };
    let (mounts, files): (&[&str], &[&str]) = if controllers.is_empty() {
        (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], &["memory.max", "memory.high"])
    } else if controllers.split(',').any(|controller| controller == "memory") {
        (&["sys/fs/cgroup/memory"], &["memory.limit_in_bytes"])
    } else {
        return Vec::new();
    };
    let group = Path::new(group.trim_start_matches('/'));
    let folders = mounts
        .iter()
        .flat_map(|mount| group.ancestors().map(move |ancestor| root.join(mount).join(ancestor)));
    folders
        .flat_map(|folder| files.iter().map(move |file| folder.join(file)))
        .filter_map(|source| {
            // `max` is no number. Without a limit, version 1 states one near the largest number.
            let bytes = fs::read_to_string(&source).ok()?.trim().parse().ok()?;
            Some(Bound { bytes, source })
        })
        .collect()
}

/// The memory of the machine, of `/proc/meminfo`: kB are 1,024 bytes.
fn total(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Bound, FALLBACK_BYTES, cache_bytes, smallest_bound};
    use crate::config::{self, Environment, Flags, Purpose};

    #[test]
    fn caches_have_a_quarter_of_the_memory_unless_their_bytes_are_set() {
        let bytes = |variables: &[(&str, &str)]| {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let environment: Environment = variables.iter().map(own).collect();
            let loaded = config::load(&environment, &Flags::default(), Purpose::Assist).ok().unwrap();
            cache_bytes(&loaded.settings)
        };
        assert_eq!(bytes(&[("WAGGLE_CACHE__BYTES", "32 MiB")]), 32 << 20);
        let quarter = |Bound { bytes, .. }| (bytes / 4).max(16 << 20);
        assert_eq!(bytes(&[]), smallest_bound(Path::new("/")).map_or(FALLBACK_BYTES, quarter));
    }

    /// The smallest bound with these files, its source relative to the root.
    fn found(files: &[(&str, &str)]) -> Option<(u64, String)> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let relative = |source: &Path| source.strip_prefix(root.path()).unwrap().display().to_string();
        smallest_bound(root.path()).map(|Bound { bytes, source }| (bytes, relative(&source)))
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:        8 kB\nMemFree:         1 kB\n");

    #[test]
    fn smallest_bound_of_all_control_groups_and_the_machine_counts() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[MACHINE]), Some((8192, "proc/meminfo".to_owned())));
        let groups = ("proc/self/cgroup", "5:devices:/\n4:cpu,memory:/docker/1\n0::/a/b\n");
        let version_1 = ("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "4096\n");
        let without = ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "9223372036854771712\n");
        let version_2 = ("sys/fs/cgroup/a/memory.max", "6000\n");
        let high = ("sys/fs/cgroup/a/b/memory.high", "5000\n");
        let none = ("sys/fs/cgroup/a/b/memory.max", "max\n");
        let unified = ("sys/fs/cgroup/unified/a/b/memory.max", "3000\n");
        for (files, expected) in [
            (vec![MACHINE, groups, without, none], (8192, MACHINE.0)),
            (vec![MACHINE, groups, without, none, version_2], (6000, version_2.0)),
            (vec![MACHINE, groups, none, version_2, high], (5000, high.0)),
            (vec![MACHINE, groups, version_1, version_2, high], (4096, version_1.0)),
            (vec![MACHINE, groups, version_1, version_2, unified], (3000, unified.0)),
        ] {
            assert_eq!(found(&files), Some((expected.0, expected.1.to_owned())));
        }
    }

    #[test]
    fn group_of_the_host_is_bounded_by_the_root_of_the_container() {
        let groups = ("proc/self/cgroup", "4:memory:/docker/1f2e\n");
        let root = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
        assert_eq!(found(&[MACHINE, groups, root]), Some((4096, root.0.to_owned())));
    }
}
