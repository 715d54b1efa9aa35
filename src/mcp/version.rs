//! The revisions of the protocol that are served, one row of a table each.

use crate::model::method::Era;

/// A served revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProtocolVersion {
    /// 2026-07-28.
    V2026_07_28,
    /// 2025-11-25.
    V2025_11_25,
    /// 2025-06-18.
    V2025_06_18,
    /// 2025-03-26.
    V2025_03_26,
    /// 2024-11-05.
    V2024_11_05,
}

/// In what one revision differs from the others.
#[expect(clippy::struct_excessive_bools, reason = "a table of yes and no")]
struct Row {
    version: ProtocolVersion,
    text: &'static str,
    era: Era,
    /// JSON-RPC batches are part of it.
    batches: bool,
    /// The schema of an error allows its `id` to be left out; before, it is required and JSON-RPC's `null`.
    errors_without_id: bool,
    /// An `Implementation` has a `title`.
    titles: bool,
    /// A server may declare `completions`.
    completions: bool,
    /// A session's stream opens with an event that says where to resume.
    priming: bool,
    /// What a message of a prompt may be.
    content: ContentTypes,
}

/// Which types of content a revision knows, each those of the one before and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContentTypes {
    /// Text, images and embedded resources.
    First,
    /// Sounds.
    Audio,
    /// Links to resources.
    ResourceLinks,
}

use Era::{Legacy, Modern};
use ProtocolVersion::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};

const TABLE: [Row; 5] = [
    Row {
        version: V2026_07_28,
        text: "2026-07-28",
        era: Modern,
        batches: false,
        errors_without_id: true,
        titles: true,
        completions: true,
        priming: false,
        content: ContentTypes::ResourceLinks,
    },
    Row {
        version: V2025_11_25,
        text: "2025-11-25",
        era: Legacy,
        batches: false,
        errors_without_id: true,
        titles: true,
        completions: true,
        priming: true,
        content: ContentTypes::ResourceLinks,
    },
    Row {
        version: V2025_06_18,
        text: "2025-06-18",
        era: Legacy,
        batches: false,
        errors_without_id: false,
        titles: true,
        completions: true,
        priming: false,
        content: ContentTypes::ResourceLinks,
    },
    Row {
        version: V2025_03_26,
        text: "2025-03-26",
        era: Legacy,
        batches: true,
        errors_without_id: false,
        titles: false,
        completions: true,
        priming: false,
        content: ContentTypes::Audio,
    },
    Row {
        version: V2024_11_05,
        text: "2024-11-05",
        era: Legacy,
        batches: false,
        errors_without_id: false,
        titles: false,
        completions: false,
        priming: false,
        content: ContentTypes::First,
    },
];

impl ProtocolVersion {
    /// Every served revision, newest first: what `supportedVersions` and `data.supported` list.
    pub const SUPPORTED: [Self; TABLE.len()] = {
        let mut all = [V2026_07_28; TABLE.len()];
        let mut at = 0;
        while at < TABLE.len() {
            all[at] = TABLE[at].version;
            at += 1;
        }
        all
    };

    /// What `initialize` is answered with where it asks for a revision that is not served.
    pub const NEWEST_LEGACY: Self = V2025_11_25;

    /// What a request without a session and without a version is taken for: the last revision that had no header for it.
    pub const ASSUMED: Self = V2025_03_26;

    const fn row(self) -> &'static Row {
        // The rows stand in the order of the variants; a test holds them to it.
        &TABLE[self as usize]
    }

    /// As it is written on the wire.
    pub const fn as_str(self) -> &'static str {
        self.row().text
    }

    /// Reads what is written on the wire; `None` for a revision that is not served.
    pub fn parse(text: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.text == text).map(|row| row.version)
    }

    /// Its era.
    pub const fn era(self) -> Era {
        self.row().era
    }

    /// Whether JSON-RPC batches are part of it.
    pub const fn knows_batches(self) -> bool {
        self.row().batches
    }

    /// Whether an error leaves its `id` out where none can be read; `null` otherwise.
    pub const fn omits_unreadable_ids(self) -> bool {
        self.row().errors_without_id
    }

    /// Whether `serverInfo` may have a `title`.
    pub const fn knows_titles(self) -> bool {
        self.row().titles
    }

    /// Whether a server may declare `completions`.
    pub const fn knows_completions(self) -> bool {
        self.row().completions
    }

    /// Whether a session's stream opens with an event that says where to resume.
    pub const fn primes_streams(self) -> bool {
        self.row().priming
    }

    /// What a message of a prompt may be.
    pub const fn content_types(self) -> ContentTypes {
        self.row().content
    }
}

#[cfg(test)]
mod tests {
    use super::{ProtocolVersion, TABLE};

    #[test]
    fn every_version_stands_in_the_table_at_its_own_place() {
        for (place, row) in TABLE.iter().enumerate() {
            assert_eq!(row.version as usize, place, "{}", row.text);
            assert_eq!(ProtocolVersion::parse(row.version.as_str()), Some(row.version));
        }
    }

    #[test]
    fn the_supported_versions_are_listed_newest_first() {
        let listed: Vec<_> = ProtocolVersion::SUPPORTED.iter().map(|v| v.as_str()).collect();
        assert_eq!(listed, ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
    }

    #[test]
    fn the_properties_of_each_revision_are_those_of_the_contract() {
        use super::ContentTypes::{Audio, First, ResourceLinks};
        use crate::model::method::Era::{Legacy, Modern};
        let of = |text| {
            ProtocolVersion::parse(text).map(|v| {
                let names = (v.omits_unreadable_ids(), v.knows_titles(), v.knows_completions());
                (v.era(), (v.knows_batches(), v.primes_streams()), names, v.content_types())
            })
        };
        assert_eq!(of("2026-07-28"), Some((Modern, (false, false), (true, true, true), ResourceLinks)));
        assert_eq!(of("2025-11-25"), Some((Legacy, (false, true), (true, true, true), ResourceLinks)));
        assert_eq!(of("2025-06-18"), Some((Legacy, (false, false), (false, true, true), ResourceLinks)));
        assert_eq!(of("2025-03-26"), Some((Legacy, (true, false), (false, false, true), Audio)));
        assert_eq!(of("2024-11-05"), Some((Legacy, (false, false), (false, false, false), First)));
        for unknown in ["", "2026-07-29", "2025-11-25 ", "DRAFT-2026-v1", "2025-6-18"] {
            assert_eq!(of(unknown), None, "{unknown:?}");
        }
    }
}
