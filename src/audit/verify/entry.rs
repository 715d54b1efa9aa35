//! A ledger entry as read from the table, decoded for verification.

use uuid::Uuid;

use crate::model::audit::chain::ChainPosition;
use crate::model::audit::digest::Digest;
use crate::model::audit::encoding::split;
use crate::model::audit::ledger::Cutoff;
use crate::model::audit::signature::{PublicKey, Signature};

/// A ledger entry as stored in the table.
pub(super) struct ScannedEntry<'a> {
    pub(super) version: i16,
    pub(super) number: i64,
    pub(super) previous: Digest,
    pub(super) at: i64,
    pub(super) kind: &'a [u8],
    pub(super) chain: Uuid,
    pub(super) first: Option<i64>,
    pub(super) before: Option<Digest>,
    pub(super) last: ChainPosition,
    pub(super) cutoff: Option<Cutoff>,
    pub(super) key: Option<PublicKey>,
    pub(super) signer: Option<PublicKey>,
    pub(super) hash: Digest,
    pub(super) signature: Option<Signature>,
    /// The hash of its actual content.
    pub(super) actual_hash: Digest,
}

impl<'a> ScannedEntry<'a> {
    /// Decodes the columns of an entry; `None` if they are malformed.
    pub(super) fn decode(fields: &'a [u8]) -> Option<Self> {
        let mut rest = fields;
        let mut next = || {
            let (value, others) = split(rest)?;
            let start = fields.len() - rest.len();
            rest = others;
            Some((value, start))
        };
        let version = i16::from_be_bytes(next()?.0?.try_into().ok()?);
        let (number, numbered) = next()?;
        let (number, previous) = (int8(number?)?, Digest::read(next()?.0?)?);
        let at = int8(next()?.0?)?;
        let kind = next()?.0?;
        let chain = Uuid::from_slice(next()?.0?).ok()?;
        let first = next()?.0.and_then(int8);
        let before = next()?.0.and_then(Digest::read);
        let (seq, head) = (int8(next()?.0?)?, Digest::read(next()?.0?)?);
        let (day, headed) = next()?;
        let retain_days = next()?.0.and_then(int4);
        let cutoff =
            day.and_then(int4).zip(retain_days).map(|(day, retain_days)| Cutoff { day, retain_days });
        let key = next()?.0.and_then(|bytes| bytes.try_into().ok()).map(PublicKey);
        let signer = next()?.0.and_then(|bytes| bytes.try_into().ok()).map(PublicKey);
        let (hash, hashed) = next()?;
        let signature = next()?.0.and_then(|bytes| bytes.try_into().ok()).map(Signature);
        // Version 1 includes neither the version nor the columns added later.
        let range = if version == 1 { numbered..headed } else { 0..hashed };
        let actual_hash = Digest::of(fields.get(range)?);
        let last = ChainPosition { id: chain, seq, head };
        let hash = Digest::read(hash?)?;
        let (cutoff, key, signer) = if version == 1 { (None, None, None) } else { (cutoff, key, signer) };
        Some(Self {
            version,
            number,
            previous,
            at,
            kind,
            chain,
            first,
            before,
            last,
            cutoff,
            key,
            signer,
            hash,
            signature,
            actual_hash,
        })
    }
}

fn int8(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

fn int4(bytes: &[u8]) -> Option<i32> {
    bytes.try_into().ok().map(i32::from_be_bytes)
}
