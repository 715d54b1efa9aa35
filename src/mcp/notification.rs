//! Change notifications of the specification, as constant pieces that need no encoding for each event.

use crate::model::subject::Subject;

/// The method of the notification of a changed subject.
pub(super) fn method(subject: &Subject) -> &'static str {
    match subject {
        Subject::ResourceList => "notifications/resources/list_changed",
        Subject::PromptList => "notifications/prompts/list_changed",
        Subject::ToolList => "notifications/tools/list_changed",
        Subject::Resource(_) => "notifications/resources/updated",
    }
}

/// The pieces of a notification. A dialect adds its own parameters between them.
pub(super) struct Pieces<'s> {
    /// The text up to and including the `{` of the parameters.
    pub(super) head: &'static str,
    /// The parameters of the method.
    pub(super) params: [&'s str; 2],
}

/// The end of the parameters and of the message.
pub(super) const END: &str = "}}";

/// The notification of a changed subject.
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
        Subject::ToolList => Pieces {
            head: r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"#,
            params: [""; 2],
        },
        Subject::Resource(watched) => Pieces {
            head: r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"#,
            params: [r#""uri":"#, &watched.json],
        },
    }
}
