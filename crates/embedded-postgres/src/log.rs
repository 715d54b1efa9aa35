//! The server's log file: bounded in size, and quoted when a start fails.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::error::{EmbeddedError, IoContext};
use crate::folder::private_file;

/// The size at which the file is truncated, in bytes.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
/// How many bytes of its end are kept.
const KEPT_BYTES: u64 = 1024 * 1024;
const QUOTED_BYTES: u64 = 8 * 1024;
const QUOTED_LINES: usize = 20;

/// The log file. All writers append, so truncating it is safe while it is open.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    pub(super) fn open(path: PathBuf) -> Result<Self, EmbeddedError> {
        let file = private_file(OpenOptions::new().read(true).append(true), &path).context("open", &path)?;
        let log = Self { path, file };
        log.truncate();
        Ok(log)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Standard output or error of a program that writes here.
    pub(super) fn writer(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Stdio::from)
    }

    /// The current length, to quote only later lines.
    pub(super) fn end(&self) -> u64 {
        self.file.metadata().map_or(0, |meta| meta.len())
    }

    /// The last lines that were written after `from`.
    pub(super) fn quote(&self, from: u64) -> String {
        let start = from.max(self.end().saturating_sub(QUOTED_BYTES));
        let text = self.read(start, QUOTED_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n")
    }

    /// Truncates a log that has grown too large to its end.
    pub(super) fn truncate(&self) {
        if self.end() <= MAX_BYTES {
            return;
        }
        let kept = self.read(self.end().saturating_sub(KEPT_BYTES), KEPT_BYTES).unwrap_or_default();
        if let Err(error) = self.file.set_len(0).and_then(|()| (&self.file).write_all(&kept)) {
            tracing::warn!(file = %self.path.display(), %error, "log file not truncated");
        }
    }

    fn read(&self, start: u64, most: u64) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_log_keeps_its_end_and_its_writers() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path().join("postgres.log")).unwrap();
        let mut writer = log.file.try_clone().unwrap();
        writer.write_all(&vec![b'x'; usize::try_from(MAX_BYTES).unwrap()]).unwrap();
        writer.write_all(b"\nlast\n").unwrap();
        log.truncate();
        assert_eq!(log.end(), KEPT_BYTES);
        writer.write_all(b"next\n").unwrap();
        assert_eq!(log.end(), KEPT_BYTES + 5);
        assert!(log.quote(0).ends_with("x\nlast\nnext"));
    }

    #[test]
    fn only_lines_after_the_mark_are_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path().join("postgres.log")).unwrap();
        let mut writer = log.file.try_clone().unwrap();
        writer.write_all(b"an earlier run\n").unwrap();
        let mark = log.end();
        writer.write_all(b"one\ntwo\n").unwrap();
        assert_eq!(log.quote(mark), "one\ntwo");
    }
}
