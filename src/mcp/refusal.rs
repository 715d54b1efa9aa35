//! Refused calls, and whether what they name is hidden from the caller. The answer is that of a call that names an unknown
//! definition; only the audit log distinguishes them.

use bytes::Bytes;

use super::call::{Call, NamedDefinition};
use crate::catalog::snapshot::view::View;
use crate::http::context::HiddenCheck;
use crate::model::fault::Fault;
use crate::model::prompt::Prompt;
use crate::model::template::ResourceTemplate;

/// Why a call is refused.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The answer.
    pub(super) fault: Fault,
    /// Whether what it names exists and is hidden from the caller; `None`: it is not.
    pub(super) hidden: Option<HiddenCheck>,
    /// The answer, if it is the result of a tool that shows the fault to a model.
    pub(super) result: Option<Bytes>,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { fault, hidden: None, result: None }
    }
}

impl Refusal {
    /// Of something that cannot be read.
    pub(super) fn of_read(view: &View, fault: Fault) -> Self {
        Self::checked(view, fault, |_| false)
    }

    /// Of a prompt of this name.
    pub(super) fn of_prompt(view: &View, name: &str, fault: Fault) -> Self {
        let name = name.to_owned();
        Self::checked(view, fault, move |view| view.hides::<Prompt>(&name))
    }

    /// Of a template of this text.
    pub(super) fn of_template(view: &View, text: &str, fault: Fault) -> Self {
        let text = text.to_owned();
        Self::checked(view, fault, move |view| view.hides::<ResourceTemplate>(&text))
    }

    /// Of a call that is answered from a view.
    pub(super) fn of_call(view: &View, call: &Call<'_>, fault: Fault) -> Self {
        match call.names() {
            Some(NamedDefinition::Prompt(name)) => Self::of_prompt(view, name, fault),
            Some(NamedDefinition::Template(text)) => Self::of_template(view, text, fault),
            Some(NamedDefinition::Skill(uri)) => {
                let uri = uri.clone();
                Self::checked(view, fault, move |view| view.hides_skill(uri.as_str()))
            }
            None => Self::of_read(view, fault),
        }
    }

    /// With a check whether a definition is hidden by `hides`, or the URI that was not found.
    fn checked(view: &View, fault: Fault, hides: impl Fn(&View) -> bool + Send + Sync + 'static) -> Self {
        let hidden = view.has_labels().then(|| {
            let (view, fault) = (view.clone(), fault.clone());
            HiddenCheck::new(move || {
                hides(&view) || matches!(&fault, Fault::ResourceNotFound(uri) if view.hides_uri(uri))
            })
        });
        Self { fault, hidden, result: None }
    }
}
