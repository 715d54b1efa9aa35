//! The spill file: rows that the database could not take, appended and synced batch by batch, and read back in order.
//!
//! It begins with the chain of its process, so that the next one knows which chain has ended. Each record is synced
//! before anything is answered for it, and followed by a sync marker. Damage before a marker is corruption: it is
//! reported, reading goes on behind it, and the file is kept under another name. Damage that no marker follows is a torn
//! write, of which nothing was promised to anybody; after a loss of power the last marker may be missing too.

mod frame;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use uuid::Uuid;

use crate::model::audit::chain::{Batch, Chain};
use frame::{HEADER, MARKER};

/// The extension of these files.
const EXTENSION: &str = "spill";
/// The extension of files in which corruption was found.
const DAMAGED: &str = "damaged";
/// Bytes of rows that are read back at once, if one record does not hold more: what was written down every few
/// milliseconds is not to cost the database a transaction each.
const AT_ONCE: usize = 2 << 20;
/// Bytes that are searched for a marker at once.
const WINDOW: usize = 1 << 20;

/// What a record holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// The process goes on with this chain.
    Chain(Uuid),
    /// Rows.
    Rows(Batch),
}

/// What a file holds next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// An intact record, with those that continue it.
    Record(Record),
    /// Corrupt bytes. The chain stood there after them; `None` where only a marker is damaged, and no record.
    Damaged(Option<Chain>),
}

/// Why something was not appended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpillError {
    #[error("the spill file of the audit log holds as much as audit.spill_bytes lets it")]
    Full,
    #[error("there is no audit.spill_dir")]
    Nowhere,
    #[error("the spill file of the audit log cannot be written: {0}")]
    File(#[from] io::Error),
}

/// The file of one process, which nobody else reads as long as it is locked.
#[derive(Debug)]
pub(super) struct Spill {
    file: Flock<File>,
    path: PathBuf,
    /// The state of the chain after the last record; `None` for a file that another process wrote.
    chain: Option<Chain>,
    /// Where the next record is read.
    read: u64,
    /// Where the next record is written.
    end: u64,
    most: u64,
    /// The offset of the last corruption that was reported.
    damaged: Option<u64>,
}

impl Spill {
    /// Makes the file of a process that begins this chain.
    pub(super) fn create(folder: &Path, chain: Uuid, most: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(chain.to_string()).with_extension(EXTENSION);
        let mut options = OpenOptions::new();
        let file = lock(options.read(true).write(true).create_new(true).mode(0o600).open(&path)?)?;
        let chain_record = Record::Chain(chain);
        let mut spill =
            Self { file, path, chain: Some(Chain::new(chain)), read: 0, end: 0, most, damaged: None };
        spill.append(&chain_record).map_err(io::Error::other)?;
        File::open(folder)?.sync_all()?;
        Ok(spill)
    }

    /// The files that processes left which are no more, the oldest first.
    pub(super) fn left_behind(folder: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
        // Named after their first chain, whose id is ordered by time.
        paths.sort();
        let mut left = Vec::new();
        for path in paths {
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let end = file.metadata()?.len();
            // One that is locked belongs to a gateway that runs.
            if let Ok(file) = lock(file) {
                left.push(Self { file, path, chain: None, read: 0, end, most: 0, damaged: None });
            }
        }
        Ok(left)
    }

    /// Whether all that was written was read.
    pub(super) fn is_drained(&self) -> bool {
        self.read == self.end
    }

    /// Bytes that were written and not read yet.
    pub(super) fn waiting(&self) -> u64 {
        self.end - self.read
    }

    /// Where the file is kept once it is done with, if corruption was found in it.
    pub(super) fn kept_as(&self) -> Option<PathBuf> {
        self.damaged.map(|_| self.path.with_extension(DAMAGED))
    }

    /// Logs that the file is corrupt where it is read next, once; answers whether that is new.
    pub(super) fn report_damage(&mut self) -> bool {
        let new = self.damaged.replace(self.read) != Some(self.read);
        if new {
            tracing::error!(file = %self.path.display(), offset = self.read, "audit spill file corrupt");
        }
        new
    }

    /// Writes a record to disk; where that fails, the file is as before.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), SpillError> {
        let bytes = frame::encode(record);
        let end = self.end + bytes.len() as u64;
        if end + MARKER as u64 > self.most {
            return Err(SpillError::Full);
        }
        let written = self.file.write_all_at(&bytes, self.end).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // What was written of it is written over by the next one, and torn until then.
            self.file.set_len(self.end).ok();
            return Err(error.into());
        }
        let chain = match record {
            Record::Chain(id) => Chain::new(*id),
            Record::Rows(batch) => batch.after,
        };
        // Synced together with the next record: one sync a record is enough for what was promised.
        let marked = self.file.write_all_at(&frame::encode_marker(end, chain), end).is_ok();
        self.end = if marked { end + MARKER as u64 } else { end };
        self.chain = Some(chain);
        Ok(())
    }

    /// What comes next, and where it ends; `None` at the end, or where what follows is torn.
    pub(super) fn peek(&self) -> io::Result<Option<(Next, u64)>> {
        let place = self.past_marker(self.read)?;
        let Some((mut record, end)) = self.record(place)? else { return self.damage(place) };
        let mut next = self.past_marker(end)?;
        while let Record::Rows(batch) = &mut record
            && batch.rows.len() < AT_ONCE
            && let Some((Record::Rows(more), end)) = self.record(next)?
            && batch.join(&more)
        {
            next = self.past_marker(end)?;
        }
        Ok(Some((Next::Record(record), next)))
    }

    /// The record at an offset, and where it ends; `None` where there is no intact one.
    fn record(&self, place: u64) -> io::Result<Option<(Record, u64)>> {
        let mut header = [0; HEADER];
        if self.end - place < HEADER as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut header, place)?;
        let start = place + HEADER as u64;
        let fits = |(length, _): &(u32, u32)| u64::from(*length) <= self.end - start;
        let Some((length, sum)) = frame::decode_header(header).filter(fits) else { return Ok(None) };
        let mut payload = vec![0; length as usize];
        self.file.read_exact_at(&mut payload, start)?;
        let record = frame::decode(&payload, sum);
        Ok(record.map(|record| (record, start + u64::from(length))))
    }

    /// The offset behind the marker at `place`, if one is there.
    fn past_marker(&self, place: u64) -> io::Result<u64> {
        if self.end - place < MARKER as u64 {
            return Ok(place);
        }
        let mut bytes = [0; MARKER];
        self.file.read_exact_at(&mut bytes, place)?;
        let found = frame::decode_marker(&bytes, place);
        Ok(found.map_or(place, |_| place + MARKER as u64))
    }

    /// What to make of bytes that are no record: the end, a torn write, or corruption and where it ends.
    fn damage(&self, place: u64) -> io::Result<Option<(Next, u64)>> {
        if place == self.end {
            return Ok(None);
        }
        // A damaged marker, followed by a record as it should be.
        let after = place + MARKER as u64;
        if after < self.end && self.record(after)?.is_some() {
            return Ok(Some((Next::Damaged(None), after)));
        }
        let marker = self.next_marker(place)?.map(|(chain, end)| (Next::Damaged(Some(chain)), end));
        // This process knows that it has synced everything up to the end.
        Ok(marker.or(self.chain.map(|chain| (Next::Damaged(Some(chain)), self.end))))
    }

    /// The state of the chain at the first marker behind `place`, and where that marker ends.
    fn next_marker(&self, place: u64) -> io::Result<Option<(Chain, u64)>> {
        let mut bytes = vec![0; usize::try_from(self.end - place).unwrap_or(WINDOW).min(WINDOW)];
        let mut start = place;
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

    /// What ends there is done with.
    pub(super) fn pass(&mut self, next: u64) {
        self.read = next;
    }

    /// Makes a file short again of which all is done with. One that is to be kept stays as it is.
    pub(super) fn shorten(&mut self) -> io::Result<()> {
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

    /// Removes the file; one in which corruption was found is renamed instead.
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
