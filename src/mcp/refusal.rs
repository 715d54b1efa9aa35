//! Refused calls, and whether what they name is hidden from the caller. The answer is that of a call that names what nobody
//! registered; only the audit log tells them apart.

use bytes::Bytes;

use super::call::Call;
use crate::catalog::snapshot::view::View;
use crate::model::call::Reference;
use crate::model::fault::Fault;
use crate::model::prompt::Prompt;
use crate::model::template::ResourceTemplate;

/// Why a call is refused.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The answer.
    pub(super) fault: Fault,
    /// Whether what it names exists and is hidden from the caller.
    pub(super) hidden: bool,
    /// The answer, if it is the result of a tool that shows the fault to a model.
    pub(super) result: Option<Bytes>,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { fault, hidden: false, result: None }
    }
}

impl Refusal {
    /// Of something that cannot be read.
    pub(super) fn of_read(view: &View, fault: Fault) -> Self {
        let hidden = matches!(&fault, Fault::ResourceNotFound(uri) if view.hides_uri(uri));
        Self { fault, hidden, result: None }
    }

    /// Of a prompt of this name.
    pub(super) fn of_prompt(view: &View, name: &str, fault: Fault) -> Self {
        let hidden = view.hides::<Prompt>(name);
        if hidden { Self { fault, hidden, result: None } } else { Self::of_read(view, fault) }
    }

    /// Of a call that is answered from a view.
    pub(super) fn of_call(view: &View, call: &Call<'_>, fault: Fault) -> Self {
        let hidden = match call {
            Call::GetPrompt { name, .. } => view.hides::<Prompt>(name.as_str()),
            Call::Complete { reference: Reference::Prompt(name), .. } => view.hides::<Prompt>(name),
            Call::Complete { reference: Reference::Template(text), .. } => {
                view.hides::<ResourceTemplate>(text)
            }
            Call::ReadResource { .. }
            | Call::List { .. }
            | Call::ListTools { .. }
            | Call::CallTool { .. } => false,
        };
        if hidden { Self { fault, hidden, result: None } } else { Self::of_read(view, fault) }
    }
}
