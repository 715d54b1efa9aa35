//! Notifications of the specification that tell of a change: pieces that no event has to encode.

use crate::model::subject::Subject;

/// The pieces of a notification. What a dialect says besides stands between them.
pub(super) struct Pieces<'s> {
    /// Up to and including the `{` of its parameters.
    pub(super) head: &'static str,
    /// The parameters of it that its method brings.
    pub(super) params: [&'s str; 2],
}

/// Closes the parameters and the message.
pub(super) const END: &str = "}}";

/// What tells that a subject changed.
pub(super) fn changed(subject: &Subject) -> Pieces<'_> {
    match subject {
        Subject::ResourceList => Pieces {
            head: r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"#,
            params: [""; 2],
        },
        Subject::PromptList => Pieces {
            head: r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"#,
            params: [""; 2],
        },
        Subject::Resource(watched) => Pieces {
            head: r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"#,
            params: [r#""uri":"#, &watched.json],
        },
    }
}
