//! A chain: rows that each carry the hash of the one before.

use std::collections::BTreeSet;
use std::fmt;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::encoding::{VERSION, day, field, int8, split, uuid};

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// What stands before the first row of a chain.
    pub const NONE: Self = Self([0; 32]);

    /// That of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// One that is stored; `None` where it has not 32 bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// One in hexadecimal.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How far a chain goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// Which.
    pub id: Uuid,
    /// Its last row.
    pub seq: i64,
    /// The hash of its last row.
    pub head: Digest,
}

impl Chain {
    /// One without rows.
    pub fn new(id: Uuid) -> Self {
        Self { id, seq: 0, head: Digest::NONE }
    }
}

/// Rows that follow each other in one chain, in the form in which they are copied into the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Where the chain stands before them.
    pub before: Chain,
    /// Where it stands after them.
    pub after: Chain,
    /// The days that they are of, counted from the first of 2000.
    pub days: BTreeSet<i32>,
    /// The rows: of each the number of its fields, then the fields.
    pub rows: Vec<u8>,
}

/// Most bytes of memory that are kept for events or rows to come.
pub const MOST_ROOM: usize = 4 << 20;
/// Bytes of a row around those of its event: the number of its fields, its version, its place, and two hashes.
const AROUND: usize = 2 + (4 + 2) + (4 + 16) + (4 + 8) + 2 * (4 + 32);
/// The columns of a row.
const COLUMNS: i16 = 29;

impl Batch {
    /// Nothing yet, in continuation of a chain.
    pub fn after(chain: Chain) -> Self {
        Self { before: chain, after: chain, days: BTreeSet::new(), rows: Vec::new() }
    }

    /// Nothing yet, in memory that held the rows of another.
    pub fn with_room(chain: Chain, room: Vec<u8>) -> Self {
        Self { rows: room, ..Self::after(chain) }
    }

    /// Makes room for so many events of so many bytes together.
    pub fn reserve(&mut self, events: usize, bytes: usize) {
        self.rows.reserve(bytes + events * AROUND);
    }

    /// The memory of its rows, without them, unless it is much.
    pub fn into_room(mut self) -> Vec<u8> {
        self.rows.clear();
        if self.rows.capacity() > MOST_ROOM { Vec::new() } else { self.rows }
    }

    /// Adds an encoded event, which gets the next place in the chain.
    pub fn push(&mut self, event: &[u8]) {
        let Chain { id, seq, head } = self.after;
        self.rows.extend_from_slice(&COLUMNS.to_be_bytes());
        let start = self.rows.len();
        field(&mut self.rows, &VERSION.to_be_bytes());
        uuid(&mut self.rows, id);
        int8(&mut self.rows, seq + 1);
        field(&mut self.rows, &head.0);
        self.rows.extend_from_slice(event);
        let hash = Digest::of(&self.rows[start..]);
        field(&mut self.rows, &hash.0);
        self.days.extend(day(event));
        self.after = Chain { id, seq: seq + 1, head: hash };
    }

    /// The same events in another chain.
    #[must_use]
    pub fn again(&self, chain: Chain) -> Self {
        let mut batch = Self::after(chain);
        let mut rest = self.rows.as_slice();
        while let Some((event, others)) = event_of(rest) {
            batch.push(event);
            rest = others;
        }
        batch
    }

    /// Adds the rows of another batch, if they go on where these end.
    pub fn join(&mut self, next: &Self) -> bool {
        if next.before != self.after {
            return false;
        }
        self.rows.extend_from_slice(&next.rows);
        self.days.extend(&next.days);
        self.after = next.after;
        true
    }

    /// The rows after a place in the chain; `None` where it is no place between them.
    pub fn since(&self, place: Chain) -> Option<Self> {
        let rows = usize::try_from(place.seq - self.before.seq).ok().filter(|rows| *rows > 0)?;
        let (mut rest, mut last) = (self.rows.as_slice(), None);
        for _ in 0..rows {
            let (_, others) = event_of(rest)?;
            last = rest[..rest.len() - others.len()].last_chunk::<32>();
            rest = others;
        }
        let fits = place.id == self.before.id && last == Some(&place.head.0);
        fits.then(|| Self { before: place, after: self.after, days: self.days.clone(), rows: rest.to_vec() })
    }

    /// Its rows in two halves; `None` where there are fewer than two.
    pub fn halves(&self) -> Option<(Self, Self)> {
        let count = self.after.seq - self.before.seq;
        let (mut rest, mut middle) = (self.rows.as_slice(), self.before);
        for _ in 0..count / 2 {
            let (_, others) = event_of(rest)?;
            let hash = rest[..rest.len() - others.len()].last_chunk::<32>()?;
            middle = Chain { seq: middle.seq + 1, head: Digest(*hash), ..middle };
            rest = others;
        }
        let first = self.rows[..self.rows.len() - rest.len()].to_vec();
        let part = |before, after, rows| Self { before, after, days: self.days.clone(), rows };
        (count > 1).then(|| (part(self.before, middle, first), part(middle, self.after, rest.to_vec())))
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.before.seq == self.after.seq
    }
}

/// Fields of a row before those of its event.
const PLACE: i16 = 4;

/// The event of the first row, and the rows after it.
fn event_of(rows: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = rows.get(2..)?;
    let mut start = rest;
    for column in 0..COLUMNS - 1 {
        if column == PLACE {
            start = rest;
        }
        (_, rest) = split(rest)?;
    }
    let event = &start[..start.len() - rest.len()];
    let (_, rest) = split(rest)?;
    Some((event, rest))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::net::{IpAddr, Ipv4Addr};

    use time::macros::datetime;
    use uuid::Uuid;

    use super::{Batch, Chain, Digest};
    use crate::model::audit::encoding;
    use crate::model::audit::event::{Actor, ActorKind, ClientName, Difference, Event};
    use crate::model::ids::{AgentId, KeyId, PrincipalId, TenantId};
    use crate::model::limits::RateLimit;
    use crate::model::outcome::Outcome;
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
            difference: Difference::default(),
        }
    }

    fn batch() -> Batch {
        let mut bytes = Vec::new();
        encoding::event(&mut bytes, &example());
        let mut batch = Batch::after(Chain::new(Uuid::from_u128(0xc)));
        batch.push(&bytes);
        batch.push(&bytes);
        batch
    }

    #[test]
    fn an_event_is_hashed_as_the_guide_says() {
        let after = batch().after;
        assert_eq!(after.seq, 2);
        let guide = include_str!("../../../docs/audit.md");
        assert!(guide.contains(&after.head.to_string()));
        insta::assert_snapshot!(after.head, @"98614192ca127d776f3d7d079f8eb9464335492889494318782c743a62a7b607");
    }

    #[test]
    fn a_row_carries_the_hash_of_the_one_before_and_its_own() {
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
    fn events_can_go_into_another_chain() {
        let batch = batch();
        let other = batch.again(Chain::new(Uuid::from_u128(0xd)));
        assert_ne!(other, batch);
        assert_eq!(other.again(batch.before), batch);
    }

    #[test]
    fn a_batch_is_joined_to_the_one_before_and_parted_where_the_database_stands() {
        let (first, mut bytes) = (batch(), Vec::new());
        encoding::event(&mut bytes, &example());
        let mut second = Batch::after(first.after);
        second.push(&bytes);
        let mut both = first.clone();
        assert!(both.join(&second));
        assert_eq!((both.before, both.after), (first.before, second.after));
        assert!(!both.clone().join(&second));
        assert_eq!(both.since(first.after), Some(second));
        for elsewhere in [
            first.before,
            Chain { head: Digest::NONE, ..first.after },
            Chain { id: Uuid::nil(), ..first.after },
            Chain { seq: 9, ..first.after },
        ] {
            assert_eq!(both.since(elsewhere), None, "{elsewhere:?}");
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
    fn what_a_terminal_would_obey_is_replaced() {
        let mut out = Vec::new();
        encoding::text(&mut out, "a\u{1b}[31m\0\u{85}ä");
        assert_eq!(&out[4..], "a\u{fffd}[31m\u{fffd}\u{fffd}ä".as_bytes());
    }

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest = Digest::of(b"x");
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Digest::parse(&"g".repeat(64)), None);
        assert_eq!(Digest::parse(&"ä".repeat(32)), None);
    }
}
