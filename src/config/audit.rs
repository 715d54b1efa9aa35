//! `[audit]`: what is written down of who asked for what, and how safely.

use std::path::PathBuf;
use std::time::Duration;

use super::{
    embedded::PATH,
    number::{Count, Size, Time},
    reader::Reader,
    secure_url::SecureUrl,
    text::Text,
};

const MIB: u64 = 1 << 20;

/// What is written down of who asked for what, and how safely.
#[derive(Clone, Debug)]
pub struct Audit {
    /// When an answer may leave.
    pub durability: Durability,
    /// What is written down.
    pub events: AuditedEvents,
    /// For how many days it is kept.
    pub retain_days: u32,
    /// How many events may wait in memory.
    pub queue: usize,
    /// How long rows wait for the database before they go into the spill file.
    pub patience: Duration,
    /// Where the spill file is; `None`: below the data directory.
    pub spill_dir: Option<PathBuf>,
    /// The spill file, in bytes.
    pub spill_bytes: u64,
    /// Where the key is that signs; `None`: on the embedded database in the data directory, else nothing is signed.
    pub signing_key_file: Option<PathBuf>,
    /// How often a checkpoint is written to `checkpoint_to`.
    pub checkpoint_every: Duration,
    /// Where checkpoints are written to; `None`: nowhere.
    pub checkpoint_to: Option<CheckpointTarget>,
}

/// Where checkpoints are written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointTarget {
    /// A file each, in this directory.
    Directory(PathBuf),
    /// Put below this address.
    Address(SecureUrl),
}

/// When an answer may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// At once; its row is written at most 50 ms later.
    Batched,
    /// When its row is on disk.
    Sync,
}

/// What is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditedEvents {
    /// Everything.
    All,
    /// What changes something, and nothing else.
    Changes,
}

impl Audit {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            durability: reader.value("audit.durability", &DURABILITY, Durability::Batched),
            events: reader.value("audit.events", &EVENTS, AuditedEvents::All),
            retain_days: reader.value("audit.retain_days", &Count(1..=36_500), 90),
            queue: reader.value("audit.queue", &Count(16..=10_000_000), 65_536),
            patience: reader.value(
                "audit.patience_ms",
                &Time::milliseconds(1..=60_000),
                Duration::from_millis(250),
            ),
            spill_dir: reader.optional("audit.spill_dir", &PATH, None),
            spill_bytes: reader.value("audit.spill_bytes", &Size(MIB..=1_048_576 * MIB), 1_024 * MIB),
            signing_key_file: reader.optional("audit.signing_key_file", &PATH, None),
            checkpoint_every: reader.value(
                "audit.checkpoint_minutes",
                &Time::minutes(1..=10_080),
                Duration::from_hours(1),
            ),
            checkpoint_to: reader.optional("audit.checkpoint_to", &TARGET, None),
        }
    }
}

const DURABILITY: Text<Durability> = Text {
    parse: |text| match text {
        "batched" => Ok(Durability::Batched),
        "sync" => Ok(Durability::Sync),
        _ => Err("is neither batched nor sync".to_owned()),
    },
    show: |durability| match durability {
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
    show: |events| match events {
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
    show: |target| match target {
        CheckpointTarget::Directory(path) => path.display().to_string(),
        // Its query may be what gives access to it.
        CheckpointTarget::Address(url) => match url.as_str().split_once('?') {
            Some((address, _)) => format!("{address}?..."),
            None => url.to_string(),
        },
    },
};
