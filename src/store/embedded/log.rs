//! The server's log file: bounded in size, and quoted when a start fails.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::error::{Doing, EmbeddedError};
use super::folder::private_file;

/// Where the file is cut, in bytes.
const LARGEST: u64 = 8 * 1024 * 1024;
/// How much of its end is kept then.
const KEPT: u64 = 1024 * 1024;
const QUOTED_BYTES: u64 = 8 * 1024;
const QUOTED_LINES: usize = 20;

/// The log file. Everyone appends, so cutting it does no harm to who has it open.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    pub(super) fn open(path: PathBuf) -> Result<Self, EmbeddedError> {
        let file = private_file(OpenOptions::new().read(true).append(true), &path).doing("open", &path)?;
        let log = Self { path, file };
        log.cut();
        Ok(log)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Standard output or error of a program that writes here.
    pub(super) fn writer(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Stdio::from)
    }

    /// Where the log ends now, to quote only what comes later.
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

    /// Keeps only the end of a log that has grown too large.
    pub(super) fn cut(&self) {
        if self.end() <= LARGEST {
            return;
        }
        let kept = self.read(self.end().saturating_sub(KEPT), KEPT).unwrap_or_default();
        if let Err(error) = self.file.set_len(0).and_then(|()| (&self.file).write_all(&kept)) {
            tracing::warn!(file = %self.path.display(), %error, "the database's log could not be cut");
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
    fn a_log_that_grew_too_large_keeps_its_end_and_writers_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path().join("postgres.log")).unwrap();
        let mut writer = log.file.try_clone().unwrap();
        writer.write_all(&vec![b'x'; usize::try_from(LARGEST).unwrap()]).unwrap();
        writer.write_all(b"\nlast\n").unwrap();
        log.cut();
        assert_eq!(log.end(), KEPT);
        writer.write_all(b"next\n").unwrap();
        assert_eq!(log.end(), KEPT + 5);
        assert!(log.quote(0).ends_with("x\nlast\nnext"));
    }

    #[test]
    fn only_the_last_lines_after_the_mark_are_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path().join("postgres.log")).unwrap();
        let mut writer = log.file.try_clone().unwrap();
        writer.write_all(b"an earlier run\n").unwrap();
        let mark = log.end();
        writer.write_all(b"one\ntwo\n").unwrap();
        assert_eq!(log.quote(mark), "one\ntwo");
    }
}
