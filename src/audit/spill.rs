//! The spill file: an append-only file for rows that the database cannot take, synced after each batch and
//! read back in order.
//!
//! It begins with the chain of its process, so that another process can end the chain. Each record is synced
//! before a response is sent for it, and followed by a sync marker. Damage before a marker is corruption: it
//! is reported, reading continues after it, and the file is kept under another name. Damage without a marker
//! after it is a torn write, for which no response was sent; after a power failure the last marker may be
//! missing too.

mod frame;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use uuid::Uuid;

use crate::model::audit::chain::ChainPosition;
use frame::{HEADER, MARKER};

pub(super) use frame::Record;

/// Extension of spill files.
const EXTENSION: &str = "spill";
/// Extension of files in which corruption was found.
const DAMAGED: &str = "damaged";
/// Bytes of rows that are appended to the log in one transaction, unless a single record has more.
const JOINED_BYTES: usize = 2 << 20;
/// Bytes that are searched for a marker at a time.
const WINDOW: usize = 1 << 20;

/// The next content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NextContent {
    /// An intact record, joined with those that continue it.
    Record(Record),
    /// Corrupt bytes, and the state of the chain after them; `None` if only a marker is corrupt.
    Damaged(Option<ChainPosition>),
}

/// Why a record was not appended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpillError {
    #[error("the audit spill file has reached audit.spill_bytes")]
    Full,
    #[error("no audit spill directory is configured; set audit.spill_dir")]
    NoDirectory,
    #[error("writing the audit spill file failed: {0}")]
    File(#[from] io::Error),
}

/// The spill file of one process, locked while the process runs.
#[derive(Debug)]
pub(super) struct Spill {
    file: Flock<File>,
    path: PathBuf,
    /// State of the chain after the last record; `None` for an adopted file.
    chain: Option<ChainPosition>,
    /// Offset of the next record to read.
    read: u64,
    /// Offset of the next record to write.
    end: u64,
    max_bytes: u64,
    /// Offset of the last corruption that was reported.
    damaged: Option<u64>,
}

impl Spill {
    /// Creates the spill file of a process.
    pub(super) fn create(folder: &Path, chain: Uuid, max_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(chain.to_string()).with_extension(EXTENSION);
        let mut options = OpenOptions::new();
        let file = lock(options.read(true).write(true).create_new(true).mode(0o600).open(&path)?)?;
        let chain_record = Record::Chain(chain);
        let mut spill = Self {
            file,
            path,
            chain: Some(ChainPosition::new(chain)),
            read: 0,
            end: 0,
            max_bytes,
            damaged: None,
        };
        spill.append(&chain_record).map_err(io::Error::other)?;
        File::open(folder)?.sync_all()?;
        Ok(spill)
    }

    /// Opens and locks the spill files of terminated processes, oldest first.
    pub(super) fn orphaned(folder: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
        // File names are the ids of their first chains, which are ordered by time.
        paths.sort();
        let mut orphaned = Vec::new();
        for path in paths {
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let end = file.metadata()?.len();
            // A locked file belongs to a running gateway.
            if let Ok(file) = lock(file) {
                orphaned.push(Self { file, path, chain: None, read: 0, end, max_bytes: 0, damaged: None });
            }
        }
        Ok(orphaned)
    }

    /// Whether every record was read.
    pub(super) fn is_drained(&self) -> bool {
        self.read == self.end
    }

    /// Number of unread bytes.
    pub(super) fn waiting(&self) -> u64 {
        self.end - self.read
    }

    /// Where the file is kept after it is drained, if corruption was found in it.
    pub(super) fn kept_as(&self) -> Option<PathBuf> {
        self.damaged.map(|_| self.path.with_extension(DAMAGED))
    }

    /// Logs corruption at the read offset; returns false if it was logged before.
    pub(super) fn report_damage(&mut self) -> bool {
        let new = self.damaged.replace(self.read) != Some(self.read);
        if new {
            tracing::error!(file = %self.path.display(), offset = self.read, "audit spill file corrupt");
        }
        new
    }

    /// Appends a record and syncs it; on error, the file is unchanged.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), SpillError> {
        let bytes = frame::encode(record);
        let end = self.end + bytes.len() as u64;
        if end + MARKER as u64 > self.max_bytes {
            return Err(SpillError::Full);
        }
        let written = self.file.write_all_at(&bytes, self.end).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // A partial record is overwritten by the next one, and torn until then.
            self.file.set_len(self.end).ok();
            return Err(error.into());
        }
        let chain = match record {
            Record::Chain(id) => ChainPosition::new(*id),
            Record::Rows(batch) => batch.after,
        };
        // Synced together with the next record: one sync per record suffices.
        let marked = self.file.write_all_at(&frame::encode_marker(end, chain), end).is_ok();
        self.end = if marked { end + MARKER as u64 } else { end };
        self.chain = Some(chain);
        Ok(())
    }

    /// The next content and its end offset; `None` at the end of the file or at a torn write.
    pub(super) fn peek(&self) -> io::Result<Option<(NextContent, u64)>> {
        let offset = self.past_marker(self.read)?;
        let Some((mut record, end)) = self.record(offset)? else { return self.classify_damage(offset) };
        let mut next = self.past_marker(end)?;
        while let Record::Rows(batch) = &mut record
            && batch.rows.len() < JOINED_BYTES
            && let Some((Record::Rows(more), end)) = self.record(next)?
            && batch.join(&more)
        {
            next = self.past_marker(end)?;
        }
        Ok(Some((NextContent::Record(record), next)))
    }

    /// The record at an offset and its end offset; `None` if it is not intact.
    fn record(&self, offset: u64) -> io::Result<Option<(Record, u64)>> {
        let mut header = [0; HEADER];
        if self.end - offset < HEADER as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut header, offset)?;
        let start = offset + HEADER as u64;
        let fits = |(length, _): &(u32, u32)| u64::from(*length) <= self.end - start;
        let Some((length, sum)) = frame::decode_header(header).filter(fits) else { return Ok(None) };
        let mut payload = vec![0; length as usize];
        self.file.read_exact_at(&mut payload, start)?;
        let record = frame::decode(&payload, sum);
        Ok(record.map(|record| (record, start + u64::from(length))))
    }

    /// The offset after the marker at `offset`, or `offset` if there is none.
    fn past_marker(&self, offset: u64) -> io::Result<u64> {
        if self.end - offset < MARKER as u64 {
            return Ok(offset);
        }
        let mut bytes = [0; MARKER];
        self.file.read_exact_at(&mut bytes, offset)?;
        let found = frame::decode_marker(&bytes, offset);
        Ok(found.map_or(offset, |_| offset + MARKER as u64))
    }

    /// Classifies bytes that are not a record: end of file, torn write, or corruption with its end offset.
    fn classify_damage(&self, offset: u64) -> io::Result<Option<(NextContent, u64)>> {
        if offset == self.end {
            return Ok(None);
        }
        // A damaged marker followed by an intact record.
        let after = offset + MARKER as u64;
        if after < self.end && self.record(after)?.is_some() {
            return Ok(Some((NextContent::Damaged(None), after)));
        }
        let marker = self.next_marker(offset)?.map(|(chain, end)| (NextContent::Damaged(Some(chain)), end));
        // This process has synced everything up to the end.
        Ok(marker.or(self.chain.map(|chain| (NextContent::Damaged(Some(chain)), self.end))))
    }

    /// The state of the chain at the first marker after `offset`, and the end offset of that marker.
    fn next_marker(&self, offset: u64) -> io::Result<Option<(ChainPosition, u64)>> {
        let mut bytes = vec![0; usize::try_from(self.end - offset).unwrap_or(WINDOW).min(WINDOW)];
        let mut start = offset;
        while self.end - start >= MARKER as u64 {
            let length = usize::try_from(self.end - start).unwrap_or(WINDOW).min(bytes.len());
            let window = &mut bytes[..length];
            self.file.read_exact_at(window, start)?;
            let found = window.windows(MARKER).zip(start..).find_map(|(bytes, offset)| {
                frame::decode_marker(bytes, offset).map(|chain| (chain, offset + MARKER as u64))
            });
            if found.is_some() {
                return Ok(found);
            }
            start += (length - MARKER + 1) as u64;
        }
        Ok(None)
    }

    /// Marks everything up to an offset as drained.
    pub(super) fn advance(&mut self, next: u64) {
        self.read = next;
    }

    /// Truncates a drained file to its first record, unless it is to be kept.
    pub(super) fn truncate(&mut self) -> io::Result<()> {
        let Some(chain) = self.chain else { return Ok(()) };
        let mut first = frame::encode(&Record::Chain(chain.id));
        first.extend(frame::encode_marker(first.len() as u64, chain));
        let length = first.len() as u64;
        if self.is_drained() && self.end > length && self.damaged.is_none() {
            self.file.write_all_at(&first, 0)?;
            self.file.set_len(length)?;
            self.file.sync_data()?;
            (self.read, self.end) = (length, length);
        }
        Ok(())
    }

    /// Removes the file, or renames it if corruption was found in it.
    pub(super) fn remove(self) -> io::Result<()> {
        match self.kept_as() {
            Some(kept) => fs::rename(&self.path, kept),
            None => fs::remove_file(&self.path),
        }
    }
}

fn lock(file: File) -> io::Result<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error.into())
}
