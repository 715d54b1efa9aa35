//! The spill file: rows that the database could not take, appended and synced batch by batch, and read back in order.
//!
//! It begins with the chain of its process, so that the next one knows which chain has ended. Each record is its length,
//! its CRC-32 and its bytes; a torn one at the end was promised to nobody.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use uuid::Uuid;

use crate::model::audit::chain::{Batch, Chain, Digest};

/// How the names of these files end.
const EXTENSION: &str = "spill";
/// Bytes of a record that hold no more than a batch may: what claims to be longer is torn.
const MOST_RECORD: u32 = 256 << 20;
/// Bytes of rows that are read back at once, if one record does not hold more: what was written down every few
/// milliseconds is not to cost the database a transaction each.
const AT_ONCE: usize = 2 << 20;

/// What a record holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// The process goes on with this chain.
    Chain(Uuid),
    /// Rows.
    Rows(Batch),
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
    /// The chain that rows belong to from here on.
    chain: Uuid,
    /// Where the next record is read.
    read: u64,
    /// Where the next record is written.
    end: u64,
    most: u64,
}

impl Spill {
    /// Makes the file of a process that begins this chain.
    pub(super) fn create(folder: &Path, chain: Uuid, most: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(chain.to_string()).with_extension(EXTENSION);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let mut spill = Self { file: lock(file)?, path, chain, read: 0, end: 0, most };
        spill.append(&Record::Chain(chain)).map_err(io::Error::other)?;
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
                left.push(Self { file, path, chain: Uuid::nil(), read: 0, end, most: 0 });
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

    /// Writes a record to disk; where that fails, the file is as before.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), SpillError> {
        let bytes = framed(record);
        let end = self.end + bytes.len() as u64;
        if end > self.most {
            return Err(SpillError::Full);
        }
        let written = self.file.write_all_at(&bytes, self.end).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // What was written of it is written over by the next one, and torn until then.
            self.file.set_len(self.end).ok();
            return Err(error.into());
        }
        self.end = end;
        if let Record::Chain(chain) = record {
            self.chain = *chain;
        }
        Ok(())
    }

    /// The next record, with those that go on where it ends, and where the last of them ends; `None` at the end, or
    /// where what follows is torn.
    pub(super) fn peek(&self) -> io::Result<Option<(Record, u64)>> {
        let Some((mut record, mut next)) = self.record(self.read)? else { return Ok(None) };
        while let Record::Rows(batch) = &mut record
            && batch.rows.len() < AT_ONCE
            && let Some((Record::Rows(more), end)) = self.record(next)?
            && batch.join(&more)
        {
            next = end;
        }
        Ok(Some((record, next)))
    }

    /// The record at a place, and where it ends.
    fn record(&self, place: u64) -> io::Result<Option<(Record, u64)>> {
        let mut head = [0; 8];
        if self.end - place < 8 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut head, place)?;
        let [length, sum] =
            [0, 4].map(|at| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        let next = place + 8 + u64::from(length);
        if length > MOST_RECORD || next > self.end {
            return Ok(None);
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, place + 8)?;
        let record = (crc32fast::hash(&bytes) == sum).then(|| read(&bytes)).flatten();
        Ok(record.map(|record| (record, next)))
    }

    /// The record that ends there is done with.
    pub(super) fn pass(&mut self, next: u64) {
        self.read = next;
    }

    /// Makes a file short again of which all is done with.
    pub(super) fn shorten(&mut self) -> io::Result<()> {
        let first = framed(&Record::Chain(self.chain));
        let length = first.len() as u64;
        if self.is_drained() && self.end > length {
            self.file.write_all_at(&first, 0)?;
            self.file.set_len(length)?;
            self.file.sync_data()?;
            (self.read, self.end) = (length, length);
        }
        Ok(())
    }

    /// Takes the file away.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

fn lock(file: File) -> io::Result<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error.into())
}

fn framed(record: &Record) -> Vec<u8> {
    let mut out = vec![0; 8];
    match record {
        Record::Chain(chain) => {
            out.push(0);
            out.extend_from_slice(chain.as_bytes());
        }
        Record::Rows(batch) => {
            out.push(1);
            out.extend_from_slice(batch.before.id.as_bytes());
            for chain in [batch.before, batch.after] {
                out.extend_from_slice(&chain.seq.to_be_bytes());
                out.extend_from_slice(&chain.head.0);
            }
            out.extend_from_slice(&u32::try_from(batch.days.len()).unwrap_or(u32::MAX).to_be_bytes());
            for day in &batch.days {
                out.extend_from_slice(&day.to_be_bytes());
            }
            out.extend_from_slice(&batch.rows);
        }
    }
    let length = u32::try_from(out.len() - 8).unwrap_or(u32::MAX);
    let sum = crc32fast::hash(&out[8..]);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out[4..8].copy_from_slice(&sum.to_be_bytes());
    out
}

fn read(bytes: &[u8]) -> Option<Record> {
    let (kind, rest) = bytes.split_first()?;
    let (id, rest) = rest.split_first_chunk::<16>()?;
    let id = Uuid::from_bytes(*id);
    if *kind == 0 {
        return Some(Record::Chain(id));
    }
    let (before, rest) = place(id, rest)?;
    let (after, rest) = place(id, rest)?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut days = BTreeSet::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (day, others) = rest.split_first_chunk::<4>()?;
        days.insert(i32::from_be_bytes(*day));
        rest = others;
    }
    Some(Record::Rows(Batch { before, after, days, rows: rest.to_vec() }))
}

fn place(id: Uuid, bytes: &[u8]) -> Option<(Chain, &[u8])> {
    let (seq, rest) = bytes.split_first_chunk::<8>()?;
    let (head, rest) = rest.split_first_chunk::<32>()?;
    Some((Chain { id, seq: i64::from_be_bytes(*seq), head: Digest(*head) }, rest))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::Path;

    use uuid::Uuid;

    use super::{Record, Spill, SpillError};
    use crate::model::audit::chain::{Batch, Chain};

    const CHAIN: Uuid = Uuid::from_u128(7);

    fn rows(chain: Chain) -> Batch {
        let mut batch = Batch::after(chain);
        batch.push(&[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
        batch
    }

    fn records(spill: &mut Spill) -> Vec<Record> {
        std::iter::from_fn(|| {
            let (record, next) = spill.peek().unwrap()?;
            spill.pass(next);
            Some(record)
        })
        .collect()
    }

    fn adopted(folder: &Path) -> Vec<Record> {
        let mut left = Spill::left_behind(folder).unwrap();
        assert_eq!(left.len(), 1);
        records(&mut left[0])
    }

    #[test]
    fn what_is_spilled_is_read_back_in_order_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::create(folder.path(), CHAIN, 1 << 20).unwrap();
        let first = rows(Chain::new(CHAIN));
        let second = rows(first.after);
        for batch in [&first, &second] {
            spill.append(&Record::Rows(batch.clone())).unwrap();
        }
        assert!(Spill::left_behind(folder.path()).unwrap().is_empty());
        drop(spill);
        // Together, since the second goes on where the first ends.
        let mut both = first;
        assert!(both.join(&second));
        assert_eq!(adopted(folder.path()), [Record::Chain(CHAIN), Record::Rows(both)]);
    }

    #[test]
    fn a_torn_record_is_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::create(folder.path(), CHAIN, 1 << 20).unwrap();
        let first = rows(Chain::new(CHAIN));
        spill.append(&Record::Rows(first.clone())).unwrap();
        let whole = spill.end;
        spill.append(&Record::Rows(rows(first.after))).unwrap();
        let (path, end) = (spill.path.clone(), spill.end);
        drop(spill);
        for length in whole..end {
            OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
            assert_eq!(adopted(folder.path()), [Record::Chain(CHAIN), Record::Rows(first.clone())]);
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(&vec![0; usize::try_from(end - length).unwrap()]).unwrap();
            assert_eq!(adopted(folder.path()), [Record::Chain(CHAIN), Record::Rows(first.clone())]);
        }
    }

    #[test]
    fn a_file_that_is_full_takes_more_once_it_is_drained() {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::create(folder.path(), CHAIN, 400).unwrap();
        let first = rows(Chain::new(CHAIN));
        spill.append(&Record::Rows(first.clone())).unwrap();
        let second = Record::Rows(rows(first.after));
        assert!(matches!(spill.append(&second), Err(SpillError::Full)));
        assert_eq!(records(&mut spill), [Record::Chain(CHAIN), Record::Rows(first)]);
        spill.shorten().unwrap();
        spill.append(&second).unwrap();
        assert_eq!(records(&mut spill), [second]);
    }
}
