//! Unpacks archives in memory. Files and bytes are counted while they are read, independently of what the archive declares.

use std::io::{self, Cursor, Read};

use flate2::read::GzDecoder;
use tar::EntryType;
use zip::ZipArchive;

use crate::error::ArchiveError;
use crate::path::check_segments;
use crate::skill::{Limits, RawFile, SKILL_MD};

/// The maximum number of entries, directories included.
const MAX_ENTRIES: usize = 4_096;
/// The maximum number of signatures of a ZIP entry in the bytes of an archive, those in files included: a bound on the
/// memory of its index.
const MAX_SIGNATURES: usize = 4 * MAX_ENTRIES;
/// The bytes of headers that a tar archive may have for each entry.
const HEADER_BYTES: usize = 4 * 512;

/// The format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// ZIP, stored or deflated.
    Zip,
    /// tar, compressed with gzip.
    TarGz,
}

/// Unpacks the files of a skill. `SKILL.md` may be at the root of the archive, or everything is in one directory of the name
/// `folder`, which is left out.
///
/// # Errors
/// [`ArchiveError`].
pub fn unpack(
    format: Format,
    bytes: &[u8],
    folder: &str,
    limits: Limits,
) -> Result<Vec<RawFile>, ArchiveError> {
    let mut unpacked = Unpacked { files: Vec::new(), left: limits.bytes, limits };
    match format {
        Format::Zip => unpacked.zip(bytes)?,
        Format::TarGz => unpacked.tar(bytes)?,
    }
    let mut files = unpacked.files;
    let inside = |file: &RawFile| {
        file.path.strip_prefix(folder).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
    };
    if !files.iter().any(|file| file.path == SKILL_MD) && files.iter().all(inside) {
        for file in &mut files {
            file.path.drain(..=folder.len());
        }
    }
    Ok(files)
}

struct Unpacked {
    files: Vec<RawFile>,
    /// How many more bytes the files may have.
    left: usize,
    limits: Limits,
}

impl Unpacked {
    fn zip(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        let signatures = bytes.windows(4).filter(|window| *window == b"PK\x01\x02");
        if signatures.take(MAX_SIGNATURES + 1).count() > MAX_SIGNATURES {
            return Err(ArchiveError::Entries(MAX_ENTRIES));
        }
        let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(unreadable)?;
        if archive.len() > MAX_ENTRIES {
            return Err(ArchiveError::Entries(MAX_ENTRIES));
        }
        if archive.has_duplicate_names() {
            return Err(ArchiveError::Unreadable("a path occurs twice".to_owned()));
        }
        for index in 0..archive.len() {
            let entry = archive.by_index_data(index).map_err(unreadable)?;
            let path = text(entry.name_raw())?;
            if entry.encrypted() {
                return Err(ArchiveError::Encrypted(path));
            }
            let kind = entry.unix_mode().map_or(0, |mode| mode & 0o170_000);
            let is_directory = entry.is_dir();
            match kind {
                0 | 0o100_000 | 0o040_000 => {}
                0o120_000 => return Err(ArchiveError::Kind { path, kind: "a link" }),
                _ => return Err(ArchiveError::Kind { path, kind: "a device" }),
            }
            if is_directory || kind == 0o040_000 {
                check_directory(&path)?;
                continue;
            }
            let file = archive.by_index(index).map_err(unreadable)?;
            self.add(&path, file)?;
        }
        Ok(())
    }

    fn tar(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        let limit = self.limits.bytes;
        let most = limit.saturating_add(MAX_ENTRIES * HEADER_BYTES);
        let mut archive = tar::Archive::new(Bounded { inner: GzDecoder::new(bytes), left: most });
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::FileTooLarge => ArchiveError::Bytes(limit),
            _ => unreadable(error),
        };
        for (number, entry) in archive.entries().map_err(failed)?.enumerate() {
            let entry = entry.map_err(failed)?;
            if number == MAX_ENTRIES {
                return Err(ArchiveError::Entries(MAX_ENTRIES));
            }
            let path = text(&entry.path_bytes())?;
            let kind = match entry.header().entry_type() {
                EntryType::XGlobalHeader => continue,
                EntryType::Directory => {
                    check_directory(&path)?;
                    continue;
                }
                EntryType::Regular | EntryType::Continuous => {
                    self.add(&path, entry)?;
                    continue;
                }
                EntryType::Symlink | EntryType::Link => "a link",
                EntryType::GNUSparse => "a sparse file",
                _ => "a device",
            };
            return Err(ArchiveError::Kind { path, kind });
        }
        // The checksum of gzip is at the end.
        io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(failed)?;
        Ok(())
    }

    fn add(&mut self, path: &str, reader: impl Read) -> Result<(), ArchiveError> {
        if self.files.len() == self.limits.files {
            return Err(ArchiveError::Files(self.limits.files));
        }
        let mut bytes = Vec::new();
        let most = u64::try_from(self.left).unwrap_or(u64::MAX).saturating_add(1);
        reader.take(most).read_to_end(&mut bytes).map_err(unreadable)?;
        self.left = self.left.checked_sub(bytes.len()).ok_or(ArchiveError::Bytes(self.limits.bytes))?;
        let path = path.strip_prefix("./").unwrap_or(path).to_owned();
        self.files.push(RawFile { path, bytes });
        Ok(())
    }
}

/// A reader that fails after a number of bytes.
struct Bounded<R> {
    inner: R,
    left: usize,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(read)
    }
}

fn text(path: &[u8]) -> Result<String, ArchiveError> {
    String::from_utf8(path.to_vec()).map_err(|_| ArchiveError::Encoding)
}

fn unreadable(error: impl std::fmt::Display) -> ArchiveError {
    ArchiveError::Unreadable(error.to_string())
}

/// Checks the path of a directory, which is otherwise ignored.
fn check_directory(path: &str) -> Result<(), ArchiveError> {
    let inner = path.strip_prefix("./").unwrap_or(path);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if matches!(inner, "" | ".") && !path.starts_with('/') {
        return Ok(());
    }
    check_segments(inner).map_err(|fault| ArchiveError::Path { path: path.to_owned(), fault })
}
