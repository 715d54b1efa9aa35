//! Reads a file, or the files of a directory.

use std::io::Read as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use cap_fs_ext::OpenOptionsSyncExt;
use cap_std::fs::{Dir, File, Metadata, MetadataExt, OpenOptions};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::{failure, listed};
use crate::error::FetchError;
use crate::location::Segment;
use crate::source::{Content, Fetched, Validator};

/// How often a file is read that changes meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// How many bytes are read between checks whether anyone still waits.
const CHUNK_BYTES: u64 = 256 * 1024;

/// How long after a change a file may change again with the same times: the resolution of the times of file systems.
const TIME_RESOLUTION: Duration = Duration::from_secs(2);

/// What one call looks for.
pub(super) struct Find<'a> {
    pub(super) root: &'a Dir,
    pub(super) known: Option<&'a Validator>,
    pub(super) bytes: u64,
    pub(super) entries: usize,
    pub(super) abandoned: &'a CancellationToken,
}

/// Files that exist, to be read.
pub(super) struct Found {
    root: Dir,
    path: String,
    what: What,
    /// The most bytes that are read.
    limit: u64,
}

enum What {
    File(File, u64),
    /// The names of files, sorted, with what they are, and the validator of all.
    Directory(Vec<(String, Metadata)>, Validator),
}

/// A file as it was read.
struct ReadFile {
    bytes: Bytes,
    metadata: Metadata,
    /// Whether the metadata stand for the bytes: a later change of the bytes changes them.
    settled: bool,
}

impl Find<'_> {
    /// A regular file; `None` if it is unchanged.
    pub(super) fn file(&self, path: String) -> Result<Option<Found>, FetchError> {
        let file = open(self.root, &path)?;
        let metadata = file.metadata().map_err(|error| failure(&error))?;
        if self.known == Some(&stamp(&metadata)) {
            return Ok(None);
        }
        self.found(path, What::File(file, metadata.len())).map(Some)
    }

    /// The regular files directly in a directory; `None` if they are unchanged.
    pub(super) fn directory(&self, path: String) -> Result<Option<Found>, FetchError> {
        let names = self.names(&path)?;
        let mut digest = Sha256::new();
        for (name, metadata) in &names {
            digest.update((name.len() as u64).to_be_bytes());
            digest.update(name);
            digest.update(&stamp(metadata).0);
        }
        let validator = Validator(digest.finalize().to_vec());
        if self.known == Some(&validator) {
            return Ok(None);
        }
        self.found(path, What::Directory(names, validator)).map(Some)
    }

    fn found(&self, path: String, what: What) -> Result<Found, FetchError> {
        let root = self.root.try_clone().map_err(|error| failure(&error))?;
        let found = Found { root, path, what, limit: self.bytes };
        if found.bytes() > self.bytes { Err(FetchError::TooLarge) } else { Ok(found) }
    }

    /// The names of the regular files of a directory, sorted, with what they are at the moment.
    fn names(&self, path: &str) -> Result<Vec<(String, Metadata)>, FetchError> {
        let mut names = Vec::new();
        for entry in self.root.read_dir(path).map_err(|error| failure(&error))? {
            check(self.abandoned)?;
            let entry = entry.map_err(|error| failure(&error))?;
            // A name that no location can have is not listed.
            let Some(name) = entry.file_name().into_string().ok().filter(|name| Segment::new(name).is_some())
            else {
                continue;
            };
            // By the root, and not by the directory: a link may lead to another directory below the root.
            let Some(metadata) = listed(self.root.metadata(format!("{path}/{name}")))? else { continue };
            if !metadata.is_file() {
                continue;
            }
            if names.len() >= self.entries {
                return Err(FetchError::TooLarge);
            }
            names.push((name, metadata));
        }
        names.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(names)
    }
}

impl Found {
    /// How many bytes are there to read.
    pub(super) fn bytes(&self) -> u64 {
        match &self.what {
            What::File(_, length) => *length,
            What::Directory(names, _) => {
                names.iter().fold(0, |sum, (_, metadata)| metadata.len().saturating_add(sum))
            }
        }
    }

    /// Reads it.
    pub(super) fn read(self, abandoned: &CancellationToken) -> Result<Fetched, FetchError> {
        let Self { root, path, what, limit } = self;
        let read = Read { root, abandoned };
        match what {
            What::File(file, _) => read.file(&path, file, limit),
            What::Directory(names, validator) => read.directory(&path, names, validator, limit),
        }
    }
}

/// Reads what was found.
struct Read<'a> {
    root: Dir,
    abandoned: &'a CancellationToken,
}

impl Read<'_> {
    /// The content of a file.
    fn file(&self, path: &str, file: File, limit: u64) -> Result<Fetched, FetchError> {
        let read = self.whole(path, file, limit)?;
        let validator = read.settled.then(|| stamp(&read.metadata));
        let content =
            Content { name: None, mime_type: None, modified: modified(&read.metadata), bytes: read.bytes };
        Ok(Fetched::Contents { contents: vec![content], validator })
    }

    /// The contents of the files of a directory.
    fn directory(
        &self,
        path: &str,
        names: Vec<(String, Metadata)>,
        validator: Validator,
        limit: u64,
    ) -> Result<Fetched, FetchError> {
        let (mut left, mut settled) = (limit, true);
        let mut contents = Vec::with_capacity(names.len());
        for (name, listed) in names {
            let path = format!("{path}/{name}");
            let read = match open(&self.root, &path).and_then(|file| self.whole(&path, file, left)) {
                // Removed since.
                Err(FetchError::NotFound) => {
                    settled = false;
                    continue;
                }
                read => read?,
            };
            left = left.saturating_sub(read.bytes.len() as u64);
            settled &= read.settled && stamp(&read.metadata) == stamp(&listed);
            let modified = modified(&read.metadata);
            contents.push(Content { name: Some(name), mime_type: None, modified, bytes: read.bytes });
        }
        Ok(Fetched::Contents { contents, validator: settled.then_some(validator) })
    }

    /// Reads a file again if it changes meanwhile.
    fn whole(&self, path: &str, mut file: File, limit: u64) -> Result<ReadFile, FetchError> {
        for attempt in 1.. {
            let before = file.metadata().map_err(|error| failure(&error))?;
            if before.len() > limit {
                return Err(FetchError::TooLarge);
            }
            let bytes = self.bytes(&mut file, before.len(), limit)?;
            let metadata = file.metadata().map_err(|error| failure(&error))?;
            let unchanged = stamp(&before) == stamp(&metadata) && bytes.len() as u64 == metadata.len();
            if unchanged || attempt == MAX_ATTEMPTS {
                return Ok(ReadFile { bytes, settled: unchanged && is_settled(&metadata), metadata });
            }
            file = open(&self.root, path)?;
        }
        Err(FetchError::Unreachable)
    }

    /// Reads to the end, of any length.
    fn bytes(&self, file: &mut File, length: u64, limit: u64) -> Result<Bytes, FetchError> {
        let mut bytes = Vec::with_capacity(usize::try_from(length).map_err(|_| FetchError::TooLarge)?);
        loop {
            check(self.abandoned)?;
            let read = file.by_ref().take(CHUNK_BYTES).read_to_end(&mut bytes);
            let read = read.map_err(|error| failure(&error))?;
            if bytes.len() as u64 > limit {
                return Err(FetchError::TooLarge);
            }
            if read == 0 {
                return Ok(Bytes::from(bytes));
            }
        }
    }
}

/// Ends work that no reader waits for.
fn check(abandoned: &CancellationToken) -> Result<(), FetchError> {
    if abandoned.is_cancelled() { Err(FetchError::Timeout) } else { Ok(()) }
}

/// Opens a regular file.
fn open(root: &Dir, path: &str) -> Result<File, FetchError> {
    // Opening a device may do something, so it is looked at first.
    if !root.metadata(path).map_err(|error| failure(&error))?.is_file() {
        return Err(FetchError::NotFound);
    }
    let mut options = OpenOptions::new();
    let file = root.open_with(path, options.read(true).nonblock(true)).map_err(|error| failure(&error))?;
    // It may have been replaced since.
    if !file.metadata().map_err(|error| failure(&error))?.is_file() {
        return Err(FetchError::NotFound);
    }
    Ok(file)
}

/// What differs when the content of a file differs.
pub(super) fn stamp(metadata: &Metadata) -> Validator {
    let parts = [
        metadata.len().to_be_bytes(),
        metadata.mtime().to_be_bytes(),
        metadata.mtime_nsec().to_be_bytes(),
        metadata.ctime().to_be_bytes(),
        metadata.ctime_nsec().to_be_bytes(),
        metadata.ino().to_be_bytes(),
    ];
    Validator(parts.concat())
}

/// When a file changed, if RFC 3339 can express it.
pub(super) fn modified(metadata: &Metadata) -> Option<OffsetDateTime> {
    let seconds = OffsetDateTime::from_unix_timestamp(metadata.mtime()).ok()?;
    let modified = seconds.checked_add(time::Duration::nanoseconds(metadata.mtime_nsec()));
    modified.filter(|at| at.year() >= 0)
}

/// Whether the last change is long enough ago that the next one has another time.
fn is_settled(metadata: &Metadata) -> bool {
    let Ok(seconds) = u64::try_from(metadata.ctime()) else { return false };
    let changed = UNIX_EPOCH + Duration::from_secs(seconds);
    SystemTime::now().duration_since(changed).is_ok_and(|age| age > TIME_RESOLUTION)
}
