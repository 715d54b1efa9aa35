//! Change notifications of the specification, as constant pieces that need no encoding for each event.

use crate::model::subject::Subject;

/// The pieces of a notification. A dialect adds its own parameters between them.
pub(super) struct Pieces<'s> {
    /// The text up to and including the `{` of the parameters.
    pub(super) head: &'static str,
    /// The parameters of the method.
    pub(super) params: [&'s str; 2],
}

/// The end of the parameters and of the message.
pub(super) const END: &str = "}}";

/// A method, with the text of its notification up to and including the `{` of the parameters.
macro_rules! with_head {
    ($method:literal) => {
        ($method, concat!(r#"{"jsonrpc":"2.0","method":""#, $method, r#"","params":{"#))
    };
}

fn method_and_head(subject: &Subject) -> (&'static str, &'static str) {
    match subject {
        Subject::ResourceList => with_head!("notifications/resources/list_changed"),
        Subject::PromptList => with_head!("notifications/prompts/list_changed"),
        Subject::ToolList => with_head!("notifications/tools/list_changed"),
        Subject::Resource(_) => with_head!("notifications/resources/updated"),
    }
}

/// The method of the notification of a changed subject.
pub(super) fn method(subject: &Subject) -> &'static str {
    method_and_head(subject).0
}

/// The notification of a changed subject.
pub(super) fn changed(subject: &Subject) -> Pieces<'_> {
    let params = match subject {
        Subject::Resource(resource) => [r#""uri":"#, &resource.json],
        Subject::ResourceList | Subject::PromptList | Subject::ToolList => [""; 2],
    };
    Pieces { head: method_and_head(subject).1, params }
}
