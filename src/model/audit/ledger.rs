//! The ledger: a chain of entries about all chains. They record when a chain was opened and ended, which of
//! its rows are missing for a reason, and which keys sign entries.

use time::OffsetDateTime;
use uuid::Uuid;

use super::chain::ChainPosition;
use super::digest::Digest;
use super::encoding::{field, int4, int8, micros, optional, text, uuid};
use super::signature::PublicKey;

/// The version of the encoding of entries. Version 1 has neither cutoff days nor signatures.
pub const VERSION: i16 = 2;

/// Kinds added by later versions. This version hashes and verifies such entries, but draws no conclusion
/// about the rows of a chain from them.
pub const RESERVED: [&str; 1] = ["archived"];

/// A kind of ledger entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// The chain was opened.
    Opened,
    /// The process of the chain shut down after this row.
    Closed(ChainPosition),
    /// The process of the chain terminated uncleanly; this is the last known row.
    Interrupted(ChainPosition),
    /// Expired rows were dropped, from `first` to `last`.
    Dropped {
        /// The first dropped row.
        first: i64,
        /// The hash before it.
        before: Digest,
        /// The last dropped row and its hash.
        last: ChainPosition,
        /// The retention applied.
        cutoff: Cutoff,
    },
    /// A key that signs later entries. Signed by the key that it replaces, or self-signed.
    Key(PublicKey),
    /// The database rejected this row; its position and hash are recorded.
    Quarantined(MissingRows),
    /// These rows were lost with a corrupt spill file. The range is empty if it is not known whether any
    /// were.
    Damaged(MissingRows),
}

/// Rows of a chain that are not in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingRows {
    /// The end of the chain before these rows.
    pub before: ChainPosition,
    /// The end of the chain after these rows.
    pub after: ChainPosition,
}

/// The retention applied to dropped rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cutoff {
    /// The cutoff day, in days since 2000-01-01: rows of earlier days have expired.
    pub day: i32,
    /// The retention in days.
    pub retain_days: i32,
}

impl EntryKind {
    /// The value of the column `kind`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Closed(_) => "closed",
            Self::Interrupted(_) => "interrupted",
            Self::Dropped { .. } => "dropped",
            Self::Key(_) => "key",
            Self::Quarantined(_) => "quarantined",
            Self::Damaged(_) => "damaged",
        }
    }
}

/// A ledger entry with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Number of the entry, from 1.
    pub number: i64,
    /// Hash of the previous entry.
    pub previous: Digest,
    /// When the entry was made.
    pub at: OffsetDateTime,
    /// The chain concerned; the nil UUID for `key`.
    pub chain: Uuid,
    /// What the entry records.
    pub kind: EntryKind,
    /// The key that signs the entry.
    pub signer: Option<PublicKey>,
}

/// The columns that depend on the kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryColumns {
    /// The first missing row.
    pub first: Option<i64>,
    /// The hash before it.
    pub before: Option<Digest>,
    /// The last row, of the chain or of the missing range, and its hash.
    pub last: (i64, Digest),
    /// Of `dropped` only.
    pub cutoff: Option<Cutoff>,
    /// Of `key` only.
    pub key: Option<PublicKey>,
}

impl LedgerEntry {
    /// The columns that depend on the kind.
    pub fn columns(&self) -> EntryColumns {
        let bare =
            EntryColumns { first: None, before: None, last: (0, Digest::NONE), cutoff: None, key: None };
        match self.kind {
            EntryKind::Opened => bare,
            EntryKind::Closed(chain) | EntryKind::Interrupted(chain) => {
                EntryColumns { last: (chain.seq, chain.head), ..bare }
            }
            EntryKind::Dropped { first, before, last, cutoff } => EntryColumns {
                first: Some(first),
                before: Some(before),
                last: (last.seq, last.head),
                cutoff: Some(cutoff),
                ..bare
            },
            EntryKind::Key(key) => EntryColumns { key: Some(key), ..bare },
            EntryKind::Quarantined(MissingRows { before, after })
            | EntryKind::Damaged(MissingRows { before, after }) => EntryColumns {
                first: Some(before.seq + 1),
                before: Some(before.head),
                last: (after.seq, after.head),
                ..bare
            },
        }
    }

    /// The hash of the entry, over all its columns, as for rows of the log.
    pub fn hash(&self) -> Digest {
        let columns = self.columns();
        let (last, head) = columns.last;
        let mut out = Vec::with_capacity(384);
        field(&mut out, &VERSION.to_be_bytes());
        int8(&mut out, self.number);
        field(&mut out, &self.previous.0);
        int8(&mut out, micros(self.at));
        text(&mut out, self.kind.as_str());
        uuid(&mut out, self.chain);
        optional(&mut out, columns.first, int8);
        optional(&mut out, columns.before, |out, hash| field(out, &hash.0));
        int8(&mut out, last);
        field(&mut out, &head.0);
        optional(&mut out, columns.cutoff.map(|cutoff| cutoff.day), int4);
        optional(&mut out, columns.cutoff.map(|cutoff| cutoff.retain_days), int4);
        optional(&mut out, columns.key, |out, key| field(out, &key.0));
        optional(&mut out, self.signer, |out, key| field(out, &key.0));
        Digest::of(&out)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use time::macros::datetime;
    use uuid::Uuid;

    use super::{Cutoff, EntryKind, LedgerEntry};
    use crate::model::audit::chain::ChainPosition;
    use crate::model::audit::digest::Digest;
    use crate::model::audit::signature::{SignaturePurpose, Signer};

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }

    #[test]
    fn entry_is_hashed_and_signed_as_documented() {
        let signer = Signer::parse(Signer::pem(&[7; 32]).as_bytes()).unwrap();
        let chain = Uuid::from_u128(0xc);
        let (before, head) = (Digest::of(b"before"), Digest::of(b"last"));
        let record = LedgerEntry {
            number: 3,
            previous: Digest::of(b"previous"),
            at: datetime!(2026-07-28 12:00:00.000001 UTC),
            chain,
            kind: EntryKind::Dropped {
                first: 5,
                before,
                last: ChainPosition { id: chain, seq: 14, head },
                cutoff: Cutoff { day: 9_615, retain_days: 90 },
            },
            signer: Some(signer.public()),
        };
        let hash = record.hash();
        let expected = json!({
            "version": 2, "number": 3, "previous": hex(&record.previous.0), "at": "2026-07-28T12:00:00.000001+00:00",
            "kind": "dropped", "chain": chain, "first": 5, "before": hex(&before.0), "last": 14, "head": hex(&head.0),
            "cutoff": "2026-04-29", "retain_days": 90, "key": null, "signer": hex(&signer.public().0),
            "hash": hex(&hash.0), "signature": hex(&signer.sign(SignaturePurpose::Entry, &hash).0),
        });
        let guide = include_str!("../../../docs/audit.md");
        let example = guide.rsplit("```json\n").next().and_then(|rest| rest.split("```").next()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(example).ok(), Some(expected.clone()), "{expected}");
    }
}
