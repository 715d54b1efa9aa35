//! The chain of chains: which chains there are, where they ended, which of their rows were dropped for their age, and
//! which keys sign its entries.

use time::OffsetDateTime;
use uuid::Uuid;

use super::chain::{Chain, Digest};
use super::encoding::{field, int4, int8, micros, optional, text, uuid};
use super::signature::PublicKey;

/// The version of the encoding of entries. Those of version 1 have neither a cut-off day nor a signature.
pub const VERSION: i16 = 2;

/// Kinds that later versions enter. Entries of them are hashed and signed like all others and say nothing of the rows of
/// a chain to a version that does not know them.
pub const RESERVED: [&str; 1] = ["archived"];

/// What became of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// It began.
    Opened,
    /// It ended with its process, in order.
    Closed(Chain),
    /// Its process ended without a word; all that is known of it is written.
    Interrupted(Chain),
    /// Its rows from `first` on were dropped, which followed `before`, up to and including those of `last`.
    Dropped {
        /// The first that is gone.
        first: i64,
        /// The hash before it.
        before: Digest,
        /// The last that is gone, and its hash.
        last: Chain,
        /// Why they are gone.
        cutoff: Cutoff,
    },
    /// A key signs entries from here on. Signed by the key that it replaces, if any, else by itself.
    Key(PublicKey),
    /// The database refused this row; its place and its hash are kept.
    Quarantined(Missing),
    /// These rows were lost with a corrupt spill file; none where it is not known that any were.
    Damaged(Missing),
}

/// Rows of a chain that are not in the log, and the hashes at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// Where the chain stands before them.
    pub before: Chain,
    /// Where it stands after them.
    pub after: Chain,
}

/// Which rows were too old to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cutoff {
    /// The cut-off day, in days since 2000-01-01: rows of the days before it are gone.
    pub day: i32,
    /// For how many days rows were kept.
    pub retain_days: i32,
}

impl Entry {
    /// As it stands in the table.
    pub fn kind(&self) -> &'static str {
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

/// An entry in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Its place, from 1.
    pub number: i64,
    /// The hash of the one before.
    pub previous: Digest,
    /// When it was made.
    pub at: OffsetDateTime,
    /// Of which chain; the nil UUID for `key`.
    pub chain: Uuid,
    /// What became of it.
    pub entry: Entry,
    /// The key that signs it.
    pub signer: Option<PublicKey>,
}

/// What depends on the kind of an entry, as it stands in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    /// Of `dropped`: the first row that is gone.
    pub first: Option<i64>,
    /// Of `dropped`: the hash before it.
    pub before: Option<Digest>,
    /// The last row, of the chain or of what was dropped, and its hash.
    pub last: (i64, Digest),
    /// Of `dropped`.
    pub cutoff: Option<Cutoff>,
    /// Of `key`.
    pub key: Option<PublicKey>,
}

impl Record {
    /// What depends on its kind.
    pub fn columns(&self) -> Columns {
        let bare = Columns { first: None, before: None, last: (0, Digest::NONE), cutoff: None, key: None };
        match self.entry {
            Entry::Opened => bare,
            Entry::Closed(chain) | Entry::Interrupted(chain) => {
                Columns { last: (chain.seq, chain.head), ..bare }
            }
            Entry::Dropped { first, before, last, cutoff } => Columns {
                first: Some(first),
                before: Some(before),
                last: (last.seq, last.head),
                cutoff: Some(cutoff),
                ..bare
            },
            Entry::Key(key) => Columns { key: Some(key), ..bare },
            Entry::Quarantined(Missing { before, after }) | Entry::Damaged(Missing { before, after }) => {
                Columns {
                    first: Some(before.seq + 1),
                    before: Some(before.head),
                    last: (after.seq, after.head),
                    ..bare
                }
            }
        }
    }

    /// Its hash: of all columns in their order, as with the rows of the log.
    pub fn hash(&self) -> Digest {
        let columns = self.columns();
        let (last, head) = columns.last;
        let mut out = Vec::with_capacity(384);
        field(&mut out, &VERSION.to_be_bytes());
        int8(&mut out, self.number);
        field(&mut out, &self.previous.0);
        int8(&mut out, micros(self.at));
        text(&mut out, self.entry.kind());
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

    use super::{Cutoff, Entry, Record};
    use crate::model::audit::chain::{Chain, Digest};
    use crate::model::audit::signature::{Purpose, Signer};

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }

    #[test]
    fn entry_is_hashed_and_signed_as_the_guide_says() {
        let signer = Signer::parse(Signer::pem(&[7; 32]).as_bytes()).unwrap();
        let chain = Uuid::from_u128(0xc);
        let (before, head) = (Digest::of(b"before"), Digest::of(b"last"));
        let record = Record {
            number: 3,
            previous: Digest::of(b"previous"),
            at: datetime!(2026-07-28 12:00:00.000001 UTC),
            chain,
            entry: Entry::Dropped {
                first: 5,
                before,
                last: Chain { id: chain, seq: 14, head },
                cutoff: Cutoff { day: 9_615, retain_days: 90 },
            },
            signer: Some(signer.public()),
        };
        let hash = record.hash();
        let expected = json!({
            "version": 2, "number": 3, "previous": hex(&record.previous.0), "at": "2026-07-28T12:00:00.000001+00:00",
            "kind": "dropped", "chain": chain, "first": 5, "before": hex(&before.0), "last": 14, "head": hex(&head.0),
            "cutoff": "2026-04-29", "retain_days": 90, "key": null, "signer": hex(&signer.public().0),
            "hash": hex(&hash.0), "signature": hex(&signer.sign(Purpose::Entry, &hash).0),
        });
        let guide = include_str!("../../../docs/audit.md");
        let example = guide.rsplit("```json\n").next().and_then(|rest| rest.split("```").next()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(example).ok(), Some(expected.clone()), "{expected}");
    }
}
