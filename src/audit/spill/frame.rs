//! The encoding of a spill file: frames of length, CRC-32 and payload.
//!
//! The payload is a record or a *sync marker*. A marker is written after a record was synced, and contains
//! its own offset and the state of the chain after that record. Everything before a valid marker was on disk,
//! so that damage there is corruption and not a torn write.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::model::audit::chain::{Batch, ChainPosition};
use crate::model::audit::digest::Digest;

/// Bytes before the payload of a frame: its length and its CRC-32.
pub(super) const HEADER: usize = 8;
/// Bytes of a sync marker: kind, offset, and the chain's id, sequence number and hash.
pub(super) const MARKER: usize = HEADER + MARKER_PAYLOAD;
const MARKER_PAYLOAD: usize = 1 + 8 + 16 + 8 + 32;
/// The encoded length of a marker's payload, with which its frame begins. Text does not contain these control
/// characters.
const MARKER_START: [u8; 4] = [0, 0, 0, 65];
/// Maximum size of a record's payload.
const MAX_PAYLOAD: u32 = 256 << 20;

const CHAIN: u8 = 0;
const ROWS: u8 = 1;
const SYNCED: u8 = 2;

/// A record of a spill file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::audit) enum Record {
    /// The process continues with this chain.
    Chain(Uuid),
    /// Rows.
    Rows(Batch),
}

/// Encodes a record as a frame.
pub(super) fn encode(record: &Record) -> Vec<u8> {
    let mut out = vec![0; HEADER];
    match record {
        Record::Chain(chain) => {
            out.push(CHAIN);
            out.extend_from_slice(chain.as_bytes());
        }
        Record::Rows(batch) => {
            out.push(ROWS);
            out.extend_from_slice(batch.before.id.as_bytes());
            position(&mut out, batch.before);
            position(&mut out, batch.after);
            out.extend_from_slice(&u32::try_from(batch.days.len()).unwrap_or(u32::MAX).to_be_bytes());
            for day in &batch.days {
                out.extend_from_slice(&day.to_be_bytes());
            }
            out.extend_from_slice(&batch.rows);
        }
    }
    seal(out)
}

/// Encodes the sync marker at `offset`, with the state of the chain after the record before it.
pub(super) fn encode_marker(offset: u64, chain: ChainPosition) -> Vec<u8> {
    let mut out = vec![0; HEADER];
    out.push(SYNCED);
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(chain.id.as_bytes());
    position(&mut out, chain);
    seal(out)
}

fn position(out: &mut Vec<u8>, chain: ChainPosition) {
    out.extend_from_slice(&chain.seq.to_be_bytes());
    out.extend_from_slice(&chain.head.0);
}

fn seal(mut frame: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(frame.len() - HEADER).unwrap_or(u32::MAX);
    let sum = crc32fast::hash(&frame[HEADER..]);
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame[4..HEADER].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Decodes the header of a frame into the length of its payload and its CRC-32; `None` if the length is too
/// large.
pub(super) fn decode_header(header: [u8; HEADER]) -> Option<(u32, u32)> {
    let [length, sum] = header.as_chunks::<4>().0 else { return None };
    let (length, sum) = (u32::from_be_bytes(*length), u32::from_be_bytes(*sum));
    (length <= MAX_PAYLOAD).then_some((length, sum))
}

/// Decodes the payload of a record; `None` if it is damaged or not a record.
pub(super) fn decode(payload: &[u8], sum: u32) -> Option<Record> {
    if crc32fast::hash(payload) != sum {
        return None;
    }
    let (kind, rest) = payload.split_first()?;
    let (id, rest) = rest.split_first_chunk::<16>()?;
    let id = Uuid::from_bytes(*id);
    match *kind {
        CHAIN => Some(Record::Chain(id)),
        ROWS => {
            let (before, rest) = decode_position(id, rest)?;
            let (after, rest) = decode_position(id, rest)?;
            let (count, mut rest) = rest.split_first_chunk::<4>()?;
            let mut days = BTreeSet::new();
            for _ in 0..u32::from_be_bytes(*count) {
                let (day, others) = rest.split_first_chunk::<4>()?;
                days.insert(i32::from_be_bytes(*day));
                rest = others;
            }
            Some(Record::Rows(Batch { before, after, days, rows: rest.to_vec() }))
        }
        _ => None,
    }
}

fn decode_position(id: Uuid, bytes: &[u8]) -> Option<(ChainPosition, &[u8])> {
    let (seq, rest) = bytes.split_first_chunk::<8>()?;
    let (head, rest) = rest.split_first_chunk::<32>()?;
    Some((ChainPosition { id, seq: i64::from_be_bytes(*seq), head: Digest(*head) }, rest))
}

/// Decodes the sync marker at `offset`; `None` if these bytes are not a marker, or one of another offset.
pub(super) fn decode_marker(frame: &[u8], offset: u64) -> Option<ChainPosition> {
    let (header, payload) = frame.split_first_chunk::<HEADER>()?;
    if header[..4] != MARKER_START || payload.len() != MARKER_PAYLOAD {
        return None;
    }
    let (_, sum) = decode_header(*header)?;
    let (kind, rest) = payload.split_first()?;
    let (place, rest) = rest.split_first_chunk::<8>()?;
    let (id, rest) = rest.split_first_chunk::<16>()?;
    let (chain, _) = decode_position(Uuid::from_bytes(*id), rest)?;
    let valid = *kind == SYNCED && u64::from_be_bytes(*place) == offset && crc32fast::hash(payload) == sum;
    valid.then_some(chain)
}
