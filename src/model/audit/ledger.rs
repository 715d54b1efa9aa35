//! The chain of chains: which chains there are, where they ended, and which of their rows were dropped for their age.

use time::OffsetDateTime;
use uuid::Uuid;

use super::chain::{Chain, Digest};
use super::encoding::{field, int8, micros, optional, text, uuid};

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
    },
}

impl Entry {
    /// As it stands in the table.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Closed(_) => "closed",
            Self::Interrupted(_) => "interrupted",
            Self::Dropped { .. } => "dropped",
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
    /// Of which chain.
    pub chain: Uuid,
    /// What became of it.
    pub entry: Entry,
}

impl Record {
    /// `first`, `before`, `last` and `head`, as they stand in the table.
    pub fn columns(&self) -> (Option<i64>, Option<Digest>, i64, Digest) {
        match self.entry {
            Entry::Opened => (None, None, 0, Digest::NONE),
            Entry::Closed(chain) | Entry::Interrupted(chain) => (None, None, chain.seq, chain.head),
            Entry::Dropped { first, before, last } => (Some(first), Some(before), last.seq, last.head),
        }
    }

    /// Its hash: of all columns in their order, as with the rows of the log.
    pub fn hash(&self) -> Digest {
        let (first, before, last, head) = self.columns();
        let mut out = Vec::with_capacity(256);
        int8(&mut out, self.number);
        field(&mut out, &self.previous.0);
        int8(&mut out, micros(self.at));
        text(&mut out, self.entry.kind());
        uuid(&mut out, self.chain);
        optional(&mut out, first, int8);
        optional(&mut out, before, |out, hash| field(out, &hash.0));
        int8(&mut out, last);
        field(&mut out, &head.0);
        Digest::of(&out)
    }
}
