//! How the scans of mounts go.

use serde::Serialize;
use time::OffsetDateTime;

/// How a mount is scanned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MountState {
    /// It is listed as far as it has been scanned.
    #[default]
    Scanning,
    /// It is listed.
    Ready,
    /// A part of it is listed: it has more files than a mount may list, or its last scan failed and it is listed as before.
    Degraded,
    /// Nothing of it is listed: it has never been scanned, or the tenant may not use its connection.
    Failed,
}

impl MountState {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Scanning, "scanning"),
        (Self::Ready, "ready"),
        (Self::Degraded, "degraded"),
        (Self::Failed, "failed"),
    ];

    /// The stored value.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("failed", |(_, text)| text)
    }

    /// Parses the stored value.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == text).map(|(state, _)| *state)
    }
}

/// The scans of a mount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountStatus {
    /// How it is scanned.
    pub state: MountState,
    /// How many files it lists.
    pub entries: u64,
    /// When the last scan ended.
    pub checked_at: Option<OffsetDateTime>,
    /// Why it is degraded or failed.
    pub reason: Option<String>,
}
