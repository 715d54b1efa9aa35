//! Records, markers, and damage at every byte.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::frame::MARKER;
use super::{NextContent, Record, Spill, SpillError};
use crate::model::audit::chain::{Batch, ChainPosition};

const CHAIN: Uuid = Uuid::from_u128(7);

fn rows(chain: ChainPosition) -> Batch {
    let mut batch = Batch::after(chain);
    batch.push(&[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
    batch
}

fn contents(spill: &mut Spill) -> Vec<NextContent> {
    std::iter::from_fn(|| {
        let (record, next) = spill.peek().unwrap()?;
        spill.advance(next);
        Some(record)
    })
    .collect()
}

fn adopted(folder: &Path) -> Vec<NextContent> {
    let mut left = Spill::orphaned(folder).unwrap();
    assert_eq!(left.len(), 1);
    contents(&mut left[0])
}

fn intact(records: impl IntoIterator<Item = Record>) -> Vec<NextContent> {
    records.into_iter().map(NextContent::Record).collect()
}

/// The spill file of a terminated process, with the range of each record without its marker.
struct OrphanedFile {
    folder: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
    batches: Vec<Batch>,
    records: Vec<Range<usize>>,
}

impl OrphanedFile {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::create(folder.path(), CHAIN, 1 << 20).unwrap();
        let end = |spill: &Spill| usize::try_from(spill.end).unwrap();
        let (mut chain, mut batches, mut records) = (ChainPosition::new(CHAIN), Vec::new(), Vec::new());
        records.push(0..end(&spill) - MARKER);
        for _ in 0..3 {
            let (start, batch) = (end(&spill), rows(chain));
            spill.append(&Record::Rows(batch.clone())).unwrap();
            chain = batch.after;
            batches.push(batch);
            records.push(start..end(&spill) - MARKER);
        }
        let path = spill.path.clone();
        drop(spill);
        let bytes = fs::read(&path).unwrap();
        Self { folder, path, bytes, batches, records }
    }

    fn with(&self, bytes: &[u8]) -> Vec<NextContent> {
        fs::write(&self.path, bytes).unwrap();
        adopted(self.folder.path())
    }
}

/// The rows of intact records, however they are joined.
fn found(next: &[NextContent]) -> Vec<i64> {
    let ranges = next.iter().filter_map(|next| match next {
        NextContent::Record(Record::Rows(batch)) => Some(batch.before.seq + 1..=batch.after.seq),
        _ => None,
    });
    ranges.flatten().collect()
}

#[test]
fn spilled_records_are_read_back_in_order_by_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut spill = Spill::create(folder.path(), CHAIN, 1 << 20).unwrap();
    let first = rows(ChainPosition::new(CHAIN));
    let second = rows(first.after);
    for batch in [&first, &second] {
        spill.append(&Record::Rows(batch.clone())).unwrap();
    }
    assert!(Spill::orphaned(folder.path()).unwrap().is_empty());
    drop(spill);
    // Joined, since the second continues the first.
    let mut both = first;
    assert!(both.join(&second));
    assert_eq!(adopted(folder.path()), intact([Record::Chain(CHAIN), Record::Rows(both)]));
}

#[test]
fn torn_record_at_the_end_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let mut spill = Spill::create(folder.path(), CHAIN, 1 << 20).unwrap();
    let first = rows(ChainPosition::new(CHAIN));
    spill.append(&Record::Rows(first.clone())).unwrap();
    let whole = spill.end;
    spill.append(&Record::Rows(rows(first.after))).unwrap();
    let (path, end) = (spill.path.clone(), spill.end - MARKER as u64);
    drop(spill);
    let expected = intact([Record::Chain(CHAIN), Record::Rows(first)]);
    for length in whole..end {
        OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        assert_eq!(adopted(folder.path()), expected);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&vec![0; usize::try_from(end - length).unwrap()]).unwrap();
        assert_eq!(adopted(folder.path()), expected);
    }
}

#[test]
fn every_flipped_bit_is_reported_or_in_the_torn_tail() {
    let left = OrphanedFile::new();
    let synced = left.records.last().unwrap().end;
    assert_eq!(found(&left.with(&left.bytes)), [1, 2, 3]);
    for place in 0..left.bytes.len() {
        let mut bytes = left.bytes.clone();
        bytes[place] ^= 1 << (place % 8);
        let next = left.with(&bytes);
        let reported: Vec<_> = next.iter().filter(|next| matches!(next, NextContent::Damaged(_))).collect();
        let damaged = left.records.iter().position(|record| record.contains(&place));
        let rows: Vec<_> = (1..=3).filter(|row| damaged != Some(*row)).collect();
        let rows: Vec<_> = rows.into_iter().map(|row| i64::try_from(row).unwrap()).collect();
        assert_eq!(found(&next), rows, "byte {place}: intact records are read");
        let state = match damaged {
            Some(0) => Some(ChainPosition::new(CHAIN)),
            Some(record) => Some(left.batches[record - 1].after),
            None => None,
        };
        let expected = NextContent::Damaged(state);
        let expected = if place < synced { vec![&expected] } else { vec![] };
        assert_eq!(reported, expected, "byte {place}");
    }
}

#[test]
fn damage_over_several_records_is_reported_up_to_the_next_marker() {
    let left = OrphanedFile::new();
    let mut bytes = left.bytes.clone();
    bytes[left.records[1].start..left.records[2].end].fill(0xff);
    let next = left.with(&bytes);
    let expected = [
        NextContent::Record(Record::Chain(CHAIN)),
        NextContent::Damaged(Some(left.batches[1].after)),
        NextContent::Record(Record::Rows(left.batches[2].clone())),
    ];
    assert_eq!(next, expected);
}

#[test]
fn running_process_reports_damage_of_its_last_record() {
    let folder = tempfile::tempdir().unwrap();
    let mut spill = Spill::create(folder.path(), CHAIN, 1 << 20).unwrap();
    let (start, batch) = (spill.end, rows(ChainPosition::new(CHAIN)));
    spill.append(&Record::Rows(batch.clone())).unwrap();
    let mut bytes = fs::read(&spill.path).unwrap();
    bytes[usize::try_from(start).unwrap()..].fill(0);
    fs::write(&spill.path, bytes).unwrap();
    let next = contents(&mut spill);
    assert_eq!(next, [NextContent::Record(Record::Chain(CHAIN)), NextContent::Damaged(Some(batch.after))]);
    assert!(spill.is_drained());
}

#[test]
fn damaged_file_is_kept_under_another_name() {
    let left = OrphanedFile::new();
    let mut bytes = left.bytes.clone();
    bytes[left.records[1].start + 9] ^= 1;
    fs::write(&left.path, &bytes).unwrap();
    let mut spills = Spill::orphaned(left.folder.path()).unwrap();
    let mut spill = spills.remove(0);
    while let Some((next, end)) = spill.peek().unwrap() {
        if matches!(next, NextContent::Damaged(_)) {
            assert!(spill.report_damage());
            assert!(!spill.report_damage(), "once");
        }
        spill.advance(end);
    }
    let kept = spill.kept_as().unwrap();
    spill.remove().unwrap();
    assert!(!left.path.exists());
    assert_eq!(fs::read(kept).unwrap(), bytes);
    assert!(Spill::orphaned(left.folder.path()).unwrap().is_empty());
}

#[test]
fn full_file_accepts_records_once_it_is_drained() {
    let folder = tempfile::tempdir().unwrap();
    let mut spill = Spill::create(folder.path(), CHAIN, 540).unwrap();
    let first = rows(ChainPosition::new(CHAIN));
    spill.append(&Record::Rows(first.clone())).unwrap();
    let second = Record::Rows(rows(first.after));
    assert!(matches!(spill.append(&second), Err(SpillError::Full)));
    assert_eq!(contents(&mut spill), intact([Record::Chain(CHAIN), Record::Rows(first)]));
    spill.truncate().unwrap();
    spill.append(&second).unwrap();
    assert_eq!(contents(&mut spill), intact([second]));
}
