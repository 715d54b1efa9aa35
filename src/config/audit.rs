//! `[audit]`: which events are recorded, and how durably.

use std::path::{Path, PathBuf};

use super::embedded::PATH;
use super::number::MIB;
use super::reader::Reader;
use super::section::section;
use super::text::Text;
use super::urls::SecureUrl;

section! {
    /// Which events are recorded, and how durably.
    #[derive(Clone, Debug)]
    pub struct Audit["audit"] {
        /// When an answer is sent: batched, at once, its row being written at most 50 ms later while the database keeps
        /// up, and `patience_ms` later when it does not; sync, when its row is on disk.
        durability: value(Durability, DURABILITY) = Durability::Batched,
        /// Which events are recorded: all, or changes only.
        events: value(AuditedEvents, EVENTS) = AuditedEvents::All,
        /// The retention of rows, in days.
        retain_days: count(u32, 1..=36_500) = 90,
        /// How many events may wait in memory.
        queue: count(usize, 16..=10_000_000) = 65_536,
        /// How long rows wait in memory for the database before they go into the spill file.
        patience: milliseconds(1..=60_000) = 250,
        /// The directory of the spill file. Default: audit in the data directory.
        spill_dir: optional(PathBuf, PATH, "./waggle-data/audit"),
        /// The size of the spill file. Above it batched loses events, which it counts and logs; sync answers 503.
        spill_bytes: size(u64, MIB..=1_048_576 * MIB) = 1_024 * MIB,
        /// The Ed25519 private key in PEM that signs ends of chains, dropped rows and checkpoints; one per replica. Default:
        /// with the embedded database audit.key in the data directory, generated at the first start; else nothing is signed.
        signing_key_file: optional(PathBuf, PATH, "./waggle-data/audit.key"),
        /// How often a checkpoint is written to `checkpoint_to`.
        checkpoint: minutes(1..=10_080) = 60,
        /// The directory, or https address, where checkpoints are written: out of reach of the owner of the database.
        checkpoint_to: optional(CheckpointTarget, TARGET, "/mnt/worm/waggle"),
    }
}

/// Where checkpoints are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointTarget {
    /// One file each, in this directory.
    Directory(PathBuf),
    /// By `PUT` below this address.
    Address(SecureUrl),
}

/// When an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// At once; its row is written at most 50 ms later while the database keeps up.
    Batched,
    /// When its row is on disk.
    Sync,
}

/// Which events are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditedEvents {
    /// All events.
    All,
    /// Changes only.
    Changes,
}

impl Audit {
    /// Refuses a checkpoint directory inside the data directory: an attacker who can replace the one could replace the other.
    pub(super) fn check_checkpoints(&self, reader: &mut Reader, data_dir: &Path) {
        let Some(CheckpointTarget::Directory(directory)) = &self.checkpoint_to else { return };
        // A path that cannot be made absolute is reported where it is used.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        if absolute(directory).starts_with(absolute(data_dir)) {
            let message = format!("must be outside embedded.data_dir, which is {}", data_dir.display());
            reader.refuse("audit.checkpoint_to", &message);
        }
    }
}

const DURABILITY: Text<Durability> = Text {
    parse: |text| match text {
        "batched" => Ok(Durability::Batched),
        "sync" => Ok(Durability::Sync),
        _ => Err("is neither batched nor sync".to_owned()),
    },
    display: |durability| match durability {
        Durability::Batched => "batched".to_owned(),
        Durability::Sync => "sync".to_owned(),
    },
};

const EVENTS: Text<AuditedEvents> = Text {
    parse: |text| match text {
        "all" => Ok(AuditedEvents::All),
        "changes" => Ok(AuditedEvents::Changes),
        _ => Err("is neither all nor changes".to_owned()),
    },
    display: |events| match events {
        AuditedEvents::All => "all".to_owned(),
        AuditedEvents::Changes => "changes".to_owned(),
    },
};

const TARGET: Text<CheckpointTarget> = Text {
    parse: |text| {
        if text.contains("://") {
            SecureUrl::parse(text).map(CheckpointTarget::Address)
        } else {
            (PATH.parse)(text).map(CheckpointTarget::Directory)
        }
    },
    display: |target| match target {
        CheckpointTarget::Directory(path) => path.display().to_string(),
        // Its query may be a secret.
        CheckpointTarget::Address(url) => match url.as_str().split_once('?') {
            Some((address, _)) => format!("{address}?..."),
            None => url.to_string(),
        },
    },
};
