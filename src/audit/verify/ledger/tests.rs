//! Entries of both versions, and which declarations of expired rows are valid.

use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{ChainStates, LedgerVerifier};
use crate::model::audit::chain::ChainPosition;
use crate::model::audit::digest::Digest;
use crate::model::audit::encoding::{field, int4, int8, micros, optional, text, uuid};
use crate::model::audit::ledger::{Cutoff, EntryKind, LedgerEntry, VERSION};
use crate::model::audit::signature::{PublicKey, SignaturePurpose, Signer};

const DAYS: i64 = 100;

fn start() -> OffsetDateTime {
    time::macros::datetime!(2026-01-01 12:00 UTC)
}

fn chain(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn dropped(first: i64, last: i64, day: i32) -> EntryKind {
    let last = ChainPosition { id: chain(1), seq: last, head: Digest::of(b"last") };
    // Days since 2000-01-01 of the first day of the tests.
    let cutoff = Cutoff { day: 9_497 + day, retain_days: 90 };
    EntryKind::Dropped { first, before: Digest::NONE, last, cutoff }
}

/// A ledger that is verified a year after its start.
struct Log {
    ledger: LedgerVerifier,
    at: ChainPosition,
}

impl Log {
    fn new(trusted: &[PublicKey]) -> Self {
        let now = micros(start() + Duration::days(365));
        Self {
            ledger: LedgerVerifier::new(std::iter::empty(), trusted, now),
            at: ChainPosition::new(Uuid::nil()),
        }
    }

    /// Adds an entry made `days` after the start.
    fn add(&mut self, days: i64, of: u128, kind: EntryKind, signer: Option<&Signer>) {
        let entry = LedgerEntry {
            number: self.at.seq + 1,
            previous: self.at.head,
            at: start() + Duration::days(days),
            chain: chain(of),
            kind,
            signer: signer.map(Signer::public),
        };
        self.read(&entry, VERSION, entry.hash(), signer);
    }

    /// Adds an entry of version 1.
    fn add_old(&mut self, days: i64, of: u128, kind: EntryKind) {
        let entry = LedgerEntry {
            number: self.at.seq + 1,
            previous: self.at.head,
            at: start() + Duration::days(days),
            chain: chain(of),
            kind,
            signer: None,
        };
        let columns = entry.columns();
        let mut out = Vec::new();
        int8(&mut out, entry.number);
        field(&mut out, &entry.previous.0);
        int8(&mut out, micros(entry.at));
        text(&mut out, entry.kind.as_str());
        uuid(&mut out, entry.chain);
        optional(&mut out, columns.first, int8);
        optional(&mut out, columns.before, |out, hash| field(out, &hash.0));
        int8(&mut out, columns.last.0);
        field(&mut out, &columns.last.1.0);
        self.read(&entry, 1, Digest::of(&out), None);
    }

    fn read(&mut self, entry: &LedgerEntry, version: i16, hash: Digest, signer: Option<&Signer>) {
        let columns = entry.columns();
        let cutoff = columns.cutoff.filter(|_| version > 1);
        let mut out = Vec::new();
        field(&mut out, &version.to_be_bytes());
        int8(&mut out, entry.number);
        field(&mut out, &entry.previous.0);
        int8(&mut out, micros(entry.at));
        text(&mut out, entry.kind.as_str());
        uuid(&mut out, entry.chain);
        optional(&mut out, columns.first, int8);
        optional(&mut out, columns.before, |out, hash| field(out, &hash.0));
        int8(&mut out, columns.last.0);
        field(&mut out, &columns.last.1.0);
        optional(&mut out, cutoff.map(|cutoff| cutoff.day), int4);
        optional(&mut out, cutoff.map(|cutoff| cutoff.retain_days), int4);
        optional(&mut out, columns.key, |out, key| field(out, &key.0));
        optional(&mut out, entry.signer, |out, key| field(out, &key.0));
        field(&mut out, &hash.0);
        let signature = signer.map(|signer| signer.sign(SignaturePurpose::Entry, &hash));
        optional(&mut out, signature, |out, signature| field(out, &signature.0));
        self.ledger.read(&out);
        self.at = ChainPosition { id: Uuid::nil(), seq: entry.number, head: hash };
    }

    fn finish(self) -> ChainStates {
        let heads: Vec<_> =
            self.ledger.states.chains.keys().map(|id| ChainPosition::new(*id)).chain([self.at]).collect();
        self.ledger.finish(&heads).0
    }

    fn findings(self) -> Vec<String> {
        let named = |finding: String| finding.replace(&chain(1).to_string(), "1");
        self.finish().findings.into_iter().map(named).collect()
    }
}

fn signer(private: u8) -> Signer {
    Signer::parse(Signer::pem(&[private; 32]).as_bytes()).unwrap()
}

#[test]
fn entries_of_version_1_still_verify() {
    let mut log = Log::new(&[]);
    log.add_old(0, 1, EntryKind::Opened);
    log.add_old(DAYS, 1, dropped(1, 4, 1));
    log.add_old(DAYS, 2, EntryKind::Opened);
    log.add_old(DAYS, 2, EntryKind::Closed(ChainPosition::new(chain(2))));
    log.add(DAYS, 3, EntryKind::Opened, None);
    // A gateway of the previous version is still running.
    log.add_old(DAYS + 1, 1, dropped(5, 9, 2));
    log.add_old(DAYS + 1, 1, EntryKind::Closed(ChainPosition::new(chain(1))));
    assert_eq!(log.findings(), [""; 0]);
}

#[test]
fn drop_of_version_1_is_invalid_once_no_such_gateway_runs() {
    let mut log = Log::new(&[]);
    log.add_old(0, 2, EntryKind::Opened);
    log.add(0, 1, EntryKind::Opened, None);
    log.add_old(DAYS, 2, EntryKind::Interrupted(ChainPosition::new(chain(2))));
    log.add_old(DAYS, 1, dropped(5, 9, 1));
    let found = "chain 1: entry 4 declares rows 5 to 9 expired: it does not name a retention";
    assert_eq!(log.findings(), [found]);
}

#[test]
fn drop_is_valid_once_the_retention_has_passed() {
    let found = |days: i64, kind: EntryKind| {
        let mut log = Log::new(&[]);
        log.add(0, 1, EntryKind::Opened, None);
        log.add(days, 1, kind, None);
        log.findings()
            .into_iter()
            .map(|finding| finding.rsplit(": ").next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(found(90, dropped(1, 4, 0)), [""; 0]);
    assert_eq!(
        found(90, dropped(1, 4, 1)),
        ["its cutoff day is less than the retention of 90 days before it"]
    );
    assert_eq!(
        found(89, dropped(1, 4, -1)),
        ["its chain was opened less than the retention of 90 days before it"]
    );
    assert_eq!(found(367, dropped(1, 4, 0)), ["its time is in the future"]);
}

#[test]
fn row_older_than_a_cutoff_must_have_been_dropped() {
    let mut log = Log::new(&[]);
    log.add(0, 1, EntryKind::Opened, None);
    log.add(0, 2, EntryKind::Opened, None);
    log.add(0, 3, EntryKind::Opened, None);
    log.add(50, 2, EntryKind::Closed(ChainPosition::new(chain(2))), None);
    log.add(DAYS, 1, dropped(5, 9, 2), None);
    let states = log.finish();
    let left = |of, seq, day: i32| states.should_have_been_dropped(chain(of), seq, 9_497 + day);
    // Before the gap in its chain, unless it is of the cutoff day; rows in or after the gap may have come
    // later.
    assert_eq!([left(1, 4, 1), left(1, 4, 2), left(1, 6, 1), left(1, 10, 1)], [true, false, false, false]);
    // Of a chain that had ended, unless the partition of its day remains; rows of an open chain may be late.
    assert_eq!([left(2, 1, 0), left(2, 1, 1), left(3, 1, 0)], [true, false, false]);
}

#[test]
fn chain_older_than_the_first_key_may_end_unsigned() {
    let key = signer(1);
    let mut log = Log::new(&[key.public()]);
    log.add(0, 1, EntryKind::Opened, None);
    log.add(0, 2, EntryKind::Opened, None);
    log.add(1, 0, EntryKind::Key(key.public()), Some(&key));
    log.add(2, 2, EntryKind::Closed(ChainPosition::new(chain(2))), None);
    assert_eq!(log.ledger.states.findings, [""; 0]);
    log.add(DAYS, 1, dropped(1, 4, 1), None);
    let found =
        "chain 1: entry 5 declares rows 1 to 4 expired: not signed, although earlier ledger entries are";
    assert_eq!(log.findings(), [found]);
}

#[test]
fn key_is_invalid_before_it_is_entered() {
    let (key, other) = (signer(1), signer(2));
    let mut log = Log::new(&[]);
    log.add(0, 0, EntryKind::Key(key.public()), Some(&key));
    log.add(0, 1, EntryKind::Opened, Some(&other));
    let found = format!("ledger: entry 2: signed by {}, a key that was never entered", other.public());
    assert_eq!(log.findings(), [found]);
}
