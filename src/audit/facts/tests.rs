//! Entries of both versions, and when rows that they declare dropped are believed to be.

use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{Facts, Ledger};
use crate::model::audit::chain::{Chain, Digest};
use crate::model::audit::encoding::{field, int4, int8, micros, optional, text, uuid};
use crate::model::audit::ledger::{Cutoff, Entry, Record, VERSION};
use crate::model::audit::signature::{PublicKey, Purpose, Signer};

const DAYS: i64 = 100;

fn start() -> OffsetDateTime {
    time::macros::datetime!(2026-01-01 12:00 UTC)
}

fn chain(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn dropped(first: i64, last: i64, day: i32) -> Entry {
    let last = Chain { id: chain(1), seq: last, head: Digest::of(b"last") };
    // Days since 2000-01-01 of the day at which the tests start.
    let cutoff = Cutoff { day: 9_497 + day, retain_days: 90 };
    Entry::Dropped { first, before: Digest::NONE, last, cutoff }
}

/// A chain of chains that is being verified a year after it began.
struct Log {
    ledger: Ledger,
    at: Chain,
}

impl Log {
    fn new(trusted: &[PublicKey]) -> Self {
        let now = micros(start() + Duration::days(365));
        Self { ledger: Ledger::new(std::iter::empty(), trusted, now), at: Chain::new(Uuid::nil()) }
    }

    /// Adds an entry that is made so many days after the start.
    fn add(&mut self, days: i64, of: u128, entry: Entry, signer: Option<&Signer>) {
        let record = Record {
            number: self.at.seq + 1,
            previous: self.at.head,
            at: start() + Duration::days(days),
            chain: chain(of),
            entry,
            signer: signer.map(Signer::public),
        };
        self.read(&record, VERSION, record.hash(), signer);
    }

    /// Adds an entry of version 1.
    fn add_old(&mut self, days: i64, of: u128, entry: Entry) {
        let record = Record {
            number: self.at.seq + 1,
            previous: self.at.head,
            at: start() + Duration::days(days),
            chain: chain(of),
            entry,
            signer: None,
        };
        let columns = record.columns();
        let mut out = Vec::new();
        int8(&mut out, record.number);
        field(&mut out, &record.previous.0);
        int8(&mut out, micros(record.at));
        text(&mut out, record.entry.kind());
        uuid(&mut out, record.chain);
        optional(&mut out, columns.first, int8);
        optional(&mut out, columns.before, |out, hash| field(out, &hash.0));
        int8(&mut out, columns.last.0);
        field(&mut out, &columns.last.1.0);
        self.read(&record, 1, Digest::of(&out), None);
    }

    fn read(&mut self, record: &Record, version: i16, hash: Digest, signer: Option<&Signer>) {
        let columns = record.columns();
        let cutoff = columns.cutoff.filter(|_| version > 1);
        let mut out = Vec::new();
        field(&mut out, &version.to_be_bytes());
        int8(&mut out, record.number);
        field(&mut out, &record.previous.0);
        int8(&mut out, micros(record.at));
        text(&mut out, record.entry.kind());
        uuid(&mut out, record.chain);
        optional(&mut out, columns.first, int8);
        optional(&mut out, columns.before, |out, hash| field(out, &hash.0));
        int8(&mut out, columns.last.0);
        field(&mut out, &columns.last.1.0);
        optional(&mut out, cutoff.map(|cutoff| cutoff.day), int4);
        optional(&mut out, cutoff.map(|cutoff| cutoff.retain_days), int4);
        optional(&mut out, columns.key, |out, key| field(out, &key.0));
        optional(&mut out, record.signer, |out, key| field(out, &key.0));
        field(&mut out, &hash.0);
        let signature = signer.map(|signer| signer.sign(Purpose::Entry, &hash));
        optional(&mut out, signature, |out, signature| field(out, &signature.0));
        self.ledger.read(&out);
        self.at = Chain { id: Uuid::nil(), seq: record.number, head: hash };
    }

    fn finish(self) -> Facts {
        let heads: Vec<_> =
            self.ledger.facts.chains.keys().map(|id| Chain::new(*id)).chain([self.at]).collect();
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
    log.add_old(0, 1, Entry::Opened);
    log.add_old(DAYS, 1, dropped(1, 4, 1));
    log.add_old(DAYS, 2, Entry::Opened);
    log.add_old(DAYS, 2, Entry::Closed(Chain::new(chain(2))));
    log.add(DAYS, 3, Entry::Opened, None);
    // A gateway of the version before still runs.
    log.add_old(DAYS + 1, 1, dropped(5, 9, 2));
    log.add_old(DAYS + 1, 1, Entry::Closed(Chain::new(chain(1))));
    assert_eq!(log.findings(), [""; 0]);
}

#[test]
fn drop_of_version_1_is_not_believed_once_no_such_gateway_runs() {
    let mut log = Log::new(&[]);
    log.add_old(0, 2, Entry::Opened);
    log.add(0, 1, Entry::Opened, None);
    log.add_old(DAYS, 2, Entry::Interrupted(Chain::new(chain(2))));
    log.add_old(DAYS, 1, dropped(5, 9, 1));
    let found =
        "chain 1: entry 4 declares rows 5 to 9 dropped for their age: it does not say under which retention";
    assert_eq!(log.findings(), [found]);
}

#[test]
fn drop_is_believed_from_its_retention_on() {
    let found = |days: i64, entry: Entry| {
        let mut log = Log::new(&[]);
        log.add(0, 1, Entry::Opened, None);
        log.add(days, 1, entry, None);
        log.findings()
            .into_iter()
            .map(|finding| finding.rsplit(": ").next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(found(90, dropped(1, 4, 0)), [""; 0]);
    assert_eq!(
        found(90, dropped(1, 4, 1)),
        ["its cut-off day is less than the retention of 90 days before it"]
    );
    assert_eq!(
        found(89, dropped(1, 4, -1)),
        ["its chain was opened less than the retention of 90 days before it"]
    );
    assert_eq!(found(367, dropped(1, 4, 0)), ["it was entered in the future"]);
}

#[test]
fn row_is_left_that_is_older_than_a_cutoff_and_was_there_before() {
    let mut log = Log::new(&[]);
    log.add(0, 1, Entry::Opened, None);
    log.add(0, 2, Entry::Opened, None);
    log.add(0, 3, Entry::Opened, None);
    log.add(50, 2, Entry::Closed(Chain::new(chain(2))), None);
    log.add(DAYS, 1, dropped(5, 9, 2), None);
    let facts = log.finish();
    let left = |of, seq, day: i32| facts.was_left(chain(of), seq, 9_497 + day);
    // Before the gap in its chain, unless it is of the cut-off day; in it or behind it, it may have come later.
    assert_eq!([left(1, 4, 1), left(1, 4, 2), left(1, 6, 1), left(1, 10, 1)], [true, false, false, false]);
    // Of a chain that had ended, unless the partition of its day is not done with; of one that goes on, it may be late.
    assert_eq!([left(2, 1, 0), left(2, 1, 1), left(3, 1, 0)], [true, false, false]);
}

#[test]
fn chain_that_began_before_the_first_key_may_end_unsigned_and_be_cut_by_none() {
    let key = signer(1);
    let mut log = Log::new(&[key.public()]);
    log.add(0, 1, Entry::Opened, None);
    log.add(0, 2, Entry::Opened, None);
    log.add(1, 0, Entry::Key(key.public()), Some(&key));
    log.add(2, 2, Entry::Closed(Chain::new(chain(2))), None);
    assert_eq!(log.ledger.facts.findings, [""; 0]);
    log.add(DAYS, 1, dropped(1, 4, 1), None);
    let found = "chain 1: entry 5 declares rows 1 to 4 dropped for their age: it is not signed, and entries before it are";
    assert_eq!(log.findings(), [found]);
}

#[test]
fn key_signs_nothing_before_it_is_entered() {
    let (key, other) = (signer(1), signer(2));
    let mut log = Log::new(&[]);
    log.add(0, 0, Entry::Key(key.public()), Some(&key));
    log.add(0, 1, Entry::Opened, Some(&other));
    let found = format!("the chain of chains: entry 2: {} signs it, which was never entered", other.public());
    assert_eq!(log.findings(), [found]);
}
