//! What a result is about, alike in both eras: a list, contents. Each era adds what it says besides.

use serde::Serialize;

use super::contents::Contents;
use super::definition::Definitions;
use crate::model::fault::Fault;
use crate::model::operation::Outcome;

/// The members of a result that its method brings.
#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub(super) enum Subject<'a> {
    /// Of `resources/list`.
    Resources {
        resources: Definitions<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_cursor: Option<&'a str>,
    },
    /// Of `resources/read`.
    Contents { contents: Contents<'a> },
    /// Of `tools/list`: there are none.
    Tools { tools: [(); 0] },
}

impl<'a> Subject<'a> {
    /// What an outcome is told as. `next_cursor` belongs to a list that goes on.
    pub(super) fn of(outcome: &'a Outcome, next_cursor: Option<&'a str>) -> Self {
        match outcome {
            Outcome::Resources { page, more: _ } => {
                Self::Resources { resources: Definitions(page), next_cursor }
            }
            Outcome::Contents { resource, bytes } => {
                Self::Contents { contents: Contents { resource, parts: bytes } }
            }
        }
    }

    /// About how many bytes it will take, where they may be many, so that the output grows once.
    pub(super) fn encoded_len(&self) -> usize {
        match self {
            Self::Contents { contents } => contents.encoded_len(),
            Self::Resources { .. } | Self::Tools { .. } => 0,
        }
    }
}

/// Appends `value` as JSON.
///
/// # Errors
/// [`Fault::Internal`] where what is stored cannot be told: text that is no text.
pub(super) fn append(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), Fault> {
    serde_json::to_writer(out, value)
        .map_err(|error| Fault::Internal(format!("cannot encode a result: {error}")))
}
