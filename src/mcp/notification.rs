//! Notifications of the specification as JSON: what tells of a change, encoded once for all streams.

use bytes::Bytes;
use serde_json::Value;

use crate::model::subject::{Subject, Watched};

/// The pieces of a notification. What a dialect says besides stands between the first two.
pub(super) struct Pieces {
    /// Up to and including the `{` of its parameters.
    pub(super) head: &'static str,
    /// The first of the parameters with its comma, of those that have any.
    pub(super) params: Option<Bytes>,
}

/// Closes the parameters and the message.
pub(super) const END: &str = "}}";

/// What tells that a subject changed.
pub(super) fn changed(subject: &Subject) -> Pieces {
    match subject {
        Subject::ResourceList => Pieces {
            head: r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"#,
            params: None,
        },
        Subject::PromptList => Pieces {
            head: r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"#,
            params: None,
        },
        Subject::Resource(watched) => Pieces {
            head: r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"#,
            params: Some(uri(watched)),
        },
    }
}

fn uri(watched: &Watched) -> Bytes {
    let encode = || format!(r#""uri":{}"#, Value::from(watched.uri.as_str())).into();
    watched.encoded.get_or_init(encode).clone()
}
