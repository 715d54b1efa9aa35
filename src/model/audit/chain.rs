//! Hash chains: rows that each contain the hash of the row before.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::digest::Digest;
use super::encoding::{VERSION, day, field, int8, split, uuid};

/// A position in a chain: that of a row, in most cases the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainPosition {
    /// Identifies the chain.
    pub id: Uuid,
    /// Number of the last row; 0 if there is none.
    pub seq: i64,
    /// Hash of the last row.
    pub head: Digest,
}

impl ChainPosition {
    /// A chain without rows.
    pub fn new(id: Uuid) -> Self {
        Self { id, seq: 0, head: Digest::NONE }
    }
}

/// Consecutive rows of one chain, encoded for PostgreSQL's binary `COPY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The end of the chain before these rows.
    pub before: ChainPosition,
    /// The end of the chain after these rows.
    pub after: ChainPosition,
    /// The days of the rows, counted from 2000-01-01.
    pub days: BTreeSet<i32>,
    /// The encoded rows: of each, the number of its fields followed by the fields.
    pub rows: Vec<u8>,
}

/// Maximum size of a buffer that is kept for reuse, in bytes.
pub const MAX_BUFFER: usize = 4 << 20;
/// Bytes of a row in addition to its event: the number of fields, version, chain, sequence number, and two
/// hashes.
const AROUND: usize = 2 + (4 + 2) + (4 + 16) + (4 + 8) + 2 * (4 + 32);
/// The number of columns of a row.
const COLUMNS: i16 = 29;

impl Batch {
    /// An empty batch that continues a chain.
    pub fn after(chain: ChainPosition) -> Self {
        Self { before: chain, after: chain, days: BTreeSet::new(), rows: Vec::new() }
    }

    /// An empty batch that reuses a buffer.
    pub fn with_buffer(chain: ChainPosition, buffer: Vec<u8>) -> Self {
        Self { rows: buffer, ..Self::after(chain) }
    }

    /// Reserves memory for `events` events of `bytes` bytes in total.
    pub fn reserve(&mut self, events: usize, bytes: usize) {
        self.rows.reserve(bytes + events * AROUND);
    }

    /// The buffer for reuse by another batch; empty if it grew too large.
    pub fn into_buffer(mut self) -> Vec<u8> {
        self.rows.clear();
        if self.rows.capacity() > MAX_BUFFER { Vec::new() } else { self.rows }
    }

    /// Appends an encoded event of version 1 as the next row of the chain.
    pub fn push(&mut self, event: &[u8]) {
        self.push_versioned(VERSION, event);
    }

    /// Appends an encoded event as the next row of the chain.
    pub fn push_versioned(&mut self, version: i16, event: &[u8]) {
        let ChainPosition { id, seq, head } = self.after;
        self.rows.extend_from_slice(&COLUMNS.to_be_bytes());
        let start = self.rows.len();
        field(&mut self.rows, &version.to_be_bytes());
        uuid(&mut self.rows, id);
        int8(&mut self.rows, seq + 1);
        field(&mut self.rows, &head.0);
        self.rows.extend_from_slice(event);
        let hash = Digest::of(&self.rows[start..]);
        field(&mut self.rows, &hash.0);
        self.days.extend(day(event));
        self.after = ChainPosition { id, seq: seq + 1, head: hash };
    }

    /// The same events as rows of another chain.
    #[must_use]
    pub fn rechained(&self, chain: ChainPosition) -> Self {
        let mut batch = Self::after(chain);
        let mut rest = self.rows.as_slice();
        while let Some(((version, event), others)) = event_of(rest) {
            batch.push_versioned(version, event);
            rest = others;
        }
        batch
    }

    /// Appends the rows of another batch, if it continues this one; returns whether it does.
    pub fn join(&mut self, next: &Self) -> bool {
        if next.before != self.after {
            return false;
        }
        self.rows.extend_from_slice(&next.rows);
        self.days.extend(&next.days);
        self.after = next.after;
        true
    }

    /// The rows after `position`; `None` if that is not the end of a row of this batch.
    pub fn rows_after(&self, position: ChainPosition) -> Option<Self> {
        let rows = usize::try_from(position.seq - self.before.seq).ok().filter(|rows| *rows > 0)?;
        let (mut rest, mut last) = (self.rows.as_slice(), None);
        for _ in 0..rows {
            let (_, others) = event_of(rest)?;
            last = rest[..rest.len() - others.len()].last_chunk::<32>();
            rest = others;
        }
        let fits = position.id == self.before.id && last == Some(&position.head.0);
        fits.then(|| Self {
            before: position,
            after: self.after,
            days: self.days.clone(),
            rows: rest.to_vec(),
        })
    }

    /// Splits the batch into two; `None` if it has fewer than two rows.
    pub fn halves(&self) -> Option<(Self, Self)> {
        let count = self.after.seq - self.before.seq;
        let (mut rest, mut middle) = (self.rows.as_slice(), self.before);
        for _ in 0..count / 2 {
            let (_, others) = event_of(rest)?;
            let hash = rest[..rest.len() - others.len()].last_chunk::<32>()?;
            middle = ChainPosition { seq: middle.seq + 1, head: Digest(*hash), ..middle };
            rest = others;
        }
        let first = self.rows[..self.rows.len() - rest.len()].to_vec();
        let part = |before, after, rows| Self { before, after, days: self.days.clone(), rows };
        (count > 1).then(|| (part(self.before, middle, first), part(middle, self.after, rest.to_vec())))
    }

    /// Whether the batch has no rows.
    pub fn is_empty(&self) -> bool {
        self.before.seq == self.after.seq
    }
}

/// Number of fields before those of the event.
const PLACE: i16 = 4;

/// An encoded event with its version.
type Versioned<'a> = (i16, &'a [u8]);

/// The event of the first row, and the rows after it.
fn event_of(rows: &[u8]) -> Option<(Versioned<'_>, &[u8])> {
    let mut rest = rows.get(2..)?;
    let version = i16::from_be_bytes(split(rest)?.0?.try_into().ok()?);
    let mut start = rest;
    for column in 0..COLUMNS - 1 {
        if column == PLACE {
            start = rest;
        }
        (_, rest) = split(rest)?;
    }
    let event = &start[..start.len() - rest.len()];
    let (_, rest) = split(rest)?;
    Some(((version, event), rest))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::net::{IpAddr, Ipv4Addr};

    use time::macros::datetime;
    use uuid::Uuid;

    use super::{Batch, ChainPosition, Digest};
    use crate::model::audit::encoding;
    use crate::model::audit::event::{Actor, ActorKind, ChangeHashes, ClientName, Event, Outcome};
    use crate::model::ids::{AgentId, KeyId, PrincipalId, Slug, TenantId};
    use crate::model::limits::RateLimit;
    use crate::model::scope::Revision;

    /// The event of the example in `docs/audit.md`.
    fn example() -> Event {
        let uid = |number| Uuid::from_u128(number);
        Event {
            at: datetime!(2026-07-28 12:00:00.000001 UTC),
            request: "r-1".into(),
            trace: Some(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes()),
            tenant: Some(TenantId(uid(1))),
            agent: Some(AgentId(uid(2))),
            slug: Some("research".into()),
            actor: Actor {
                kind: ActorKind::Agent,
                principal: Some(PrincipalId(uid(3))),
                key: Some(KeyId(uid(4))),
                limits: RateLimit::default(),
            },
            client: IpAddr::V4(Ipv4Addr::LOCALHOST).into(),
            client_name: Some(ClientName::new("curl\n", "8")),
            protocol: Some("2026-07-28"),
            session: None,
            method: Cow::Borrowed("resources/read"),
            subject: Some("test://a".into()),
            outcome: Outcome::Ok,
            status: Some(200),
            micros: 42,
            bytes_in: 100,
            bytes_out: Some(200),
            revision: Some(Revision(7)),
            difference: ChangeHashes::default(),
            connection: None,
            hidden: false,
        }
    }

    fn batch() -> Batch {
        let mut bytes = Vec::new();
        encoding::event(&mut bytes, &example());
        let mut batch = Batch::after(ChainPosition::new(Uuid::from_u128(0xc)));
        batch.push(&bytes);
        batch.push(&bytes);
        batch
    }

    #[test]
    fn event_is_hashed_as_documented() {
        let after = batch().after;
        assert_eq!(after.seq, 2);
        let guide = include_str!("../../../docs/audit.md");
        assert!(guide.contains(&after.head.to_string()));
        insta::assert_snapshot!(after.head, @"98614192ca127d776f3d7d079f8eb9464335492889494318782c743a62a7b607");
    }

    #[test]
    fn row_contains_the_previous_hash_and_its_own() {
        let batch = batch();
        let second = &batch.rows[batch.rows.len() / 2..];
        let (fields, hash) = second[2..].split_at(second.len() - 2 - 36);
        assert_eq!(Digest::of(fields), batch.after.head);
        assert_eq!(hash[4..], batch.after.head.0);
        let first = &batch.rows[..batch.rows.len() / 2];
        assert_eq!(fields[38..][4..36], first[first.len() - 32..]);
        assert_eq!(batch.days.into_iter().collect::<Vec<_>>(), [9_705]);
    }

    #[test]
    fn events_can_be_moved_to_another_chain() {
        let batch = batch();
        let other = batch.rechained(ChainPosition::new(Uuid::from_u128(0xd)));
        assert_ne!(other, batch);
        assert_eq!(other.rechained(batch.before), batch);
    }

    #[test]
    fn version_is_hashed_and_moves_with_its_event() {
        let connection = Slug::parse("docs").ok();
        for (event, version) in [
            (Event { hidden: true, ..example() }, 2),
            (Event { connection: connection.clone(), ..example() }, 3),
            (Event { hidden: true, connection, ..example() }, 4),
        ] {
            let mut bytes = Vec::new();
            encoding::event(&mut bytes, &event);
            assert_eq!(encoding::version(&event), version);
            let (mut versioned, mut plain) = (batch(), batch());
            versioned.push_versioned(version, &bytes);
            plain.push(&bytes);
            assert_ne!(versioned.after.head, plain.after.head);
            let other = versioned.rechained(ChainPosition::new(Uuid::from_u128(0xd)));
            assert_eq!(other.rechained(versioned.before), versioned);
        }
    }

    #[test]
    fn connection_is_stored_in_front_of_the_subject() {
        let stored = |version| encoding::connection(version, Some("docs test://a b".to_owned()));
        for version in [3, 4] {
            assert_eq!(stored(version), (Some("docs".to_owned()), Some("test://a b".to_owned())));
        }
        assert_eq!(encoding::connection(3, Some("docs".to_owned())), (Some("docs".to_owned()), None));
        for version in [1, 2] {
            assert_eq!(stored(version), (None, Some("docs test://a b".to_owned())));
        }
    }

    #[test]
    fn batches_join_and_split_at_the_end_of_a_row() {
        let (first, mut bytes) = (batch(), Vec::new());
        encoding::event(&mut bytes, &example());
        let mut second = Batch::after(first.after);
        second.push(&bytes);
        let mut both = first.clone();
        assert!(both.join(&second));
        assert_eq!((both.before, both.after), (first.before, second.after));
        assert!(!both.clone().join(&second));
        assert_eq!(both.rows_after(first.after), Some(second));
        for elsewhere in [
            first.before,
            ChainPosition { head: Digest::NONE, ..first.after },
            ChainPosition { id: Uuid::nil(), ..first.after },
            ChainPosition { seq: 9, ..first.after },
        ] {
            assert_eq!(both.rows_after(elsewhere), None, "{elsewhere:?}");
        }
    }

    #[test]
    fn halves_of_a_batch_join_to_the_whole() {
        let (whole, mut bytes) = (batch(), Vec::new());
        encoding::event(&mut bytes, &example());
        let mut whole = whole;
        whole.push(&bytes);
        let (mut first, second) = whole.halves().unwrap();
        assert_eq!((first.after.seq, second.halves().map(|(first, _)| first.after.seq)), (1, Some(2)));
        assert_eq!(first.halves(), None);
        assert!(first.join(&second));
        assert_eq!(first, whole);
    }

    #[test]
    fn control_characters_are_replaced() {
        let mut out = Vec::new();
        encoding::text(&mut out, "a\u{1b}[31m\0\u{85}ä");
        assert_eq!(&out[4..], "a\u{fffd}[31m\u{fffd}\u{fffd}ä".as_bytes());
    }
}
