//! The table of served protocol versions (revisions): one row each.

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

/// The differences between revisions.
#[expect(clippy::struct_excessive_bools, reason = "a table of yes and no")]
struct Row {
    version: ProtocolVersion,
    text: &'static str,
    era: Era,
    /// The revision has JSON-RPC batches.
    batches: bool,
    /// An error may omit its `id`; in earlier revisions it is required, and `null` if unknown.
    errors_without_id: bool,
    /// An `Implementation` has a `title`.
    titles: bool,
    /// A server may declare `completions`.
    completions: bool,
    /// The stream of a session starts with an event that carries the resume position.
    priming: bool,
    /// The content types of prompt messages.
    content: ContentTypes,
    /// The members of tools and of their results.
    tools: ToolMembers,
}

/// The content types of a revision; each variant includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContentTypes {
    /// Text, images and embedded resources.
    First,
    /// Audio.
    Audio,
    /// Resource links.
    ResourceLinks,
}

/// The members of tools and of their results in a revision; each variant includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToolMembers {
    /// Name, description and input schema; content.
    First,
    /// Annotations.
    Annotations,
    /// Title and output schema; structured content.
    StructuredContent,
    /// Icons.
    Icons,
}

impl ToolMembers {
    /// Whether a tool has annotations.
    pub fn have_annotations(self) -> bool {
        self >= Self::Annotations
    }

    /// Whether a tool has a title and an output schema, and its result structured content.
    pub fn have_structured_content(self) -> bool {
        self >= Self::StructuredContent
    }

    /// Whether a tool has icons.
    pub fn have_icons(self) -> bool {
        self >= Self::Icons
    }
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
        tools: ToolMembers::Icons,
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
        tools: ToolMembers::Icons,
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
        tools: ToolMembers::StructuredContent,
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
        tools: ToolMembers::Annotations,
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
        tools: ToolMembers::First,
    },
];

impl ProtocolVersion {
    /// Every served revision, newest first, as `supportedVersions` and `data.supported` list them.
    pub const SUPPORTED: [Self; TABLE.len()] = {
        let mut all = [V2026_07_28; TABLE.len()];
        let mut at = 0;
        while at < TABLE.len() {
            all[at] = TABLE[at].version;
            at += 1;
        }
        all
    };

    /// The answer to an `initialize` that requests an unsupported revision.
    pub const NEWEST_LEGACY: Self = V2025_11_25;

    /// The assumed revision of a request without session and version: the last one without the version header.
    pub const ASSUMED: Self = V2025_03_26;

    const fn row(self) -> &'static Row {
        // The rows are in the order of the variants; a test checks it.
        &TABLE[self as usize]
    }

    /// The text on the wire.
    pub const fn as_str(self) -> &'static str {
        self.row().text
    }

    /// Parses the text on the wire; `None` for an unsupported revision.
    pub fn parse(text: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.text == text).map(|row| row.version)
    }

    /// The era.
    pub const fn era(self) -> Era {
        self.row().era
    }

    /// Whether the revision has JSON-RPC batches.
    pub const fn knows_batches(self) -> bool {
        self.row().batches
    }

    /// Whether an error omits an unknown `id`; `null` otherwise.
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

    /// Whether the stream of a session starts with an event that carries the resume position.
    pub const fn primes_streams(self) -> bool {
        self.row().priming
    }

    /// The content types of prompt messages.
    pub const fn content_types(self) -> ContentTypes {
        self.row().content
    }

    /// The members of tools and of their results.
    pub const fn tool_members(self) -> ToolMembers {
        self.row().tools
    }
}

#[cfg(test)]
mod tests {
    use super::{ProtocolVersion, TABLE};

    #[test]
    fn table_rows_are_in_the_order_of_the_versions() {
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
