//! Pages of lists (pagination): cached ones, and new ones with the cursor of the next page.

use std::borrow::Cow;

use bytes::Bytes;

use super::call_handler::{CallContext, CallHandler};
use super::result::ResultMembers;
use super::results::{PageSubject, ResultForm, ResultSubject};
use crate::model::call::List;
use crate::model::fault::Fault;
use crate::model::label::{CallerLabels, Label};
use crate::model::scope::Revision;

/// A list whose pages are cached.
pub(super) struct PagedList<'a> {
    /// The name that its cursors are signed under.
    pub(super) name: &'a str,
    /// The revision that last changed it.
    pub(super) revision: Revision,
    /// The form of its pages.
    pub(super) form: ResultForm,
}

impl CallHandler {
    /// A page of `resources/list`, `resources/templates/list` or `prompts/list`.
    pub(super) fn list(
        &self,
        context: &CallContext<'_>,
        list: List,
        cursor: Option<&str>,
    ) -> Result<Bytes, Fault> {
        let changed = &context.view.snapshot().changed.lists;
        let (name, revision) = match list {
            List::Resources => ("mcp resources", changed.resources),
            List::Templates => ("mcp templates", changed.templates),
            List::Prompts => ("mcp prompts", changed.prompts),
        };
        self.cached_page(
            context,
            PagedList { name, revision, form: ResultForm::Method },
            cursor,
            |page| ResultSubject::Page(list, Box::new(page)),
            |after| {
                let page = self.catalog.list(&context.view, list, after);
                let end = page.last();
                Ok((page, end))
            },
            |page, next| context.encode(ResultMembers::page(&page, next)),
        )
    }

    /// The page after the position in a cursor. If it is not cached, `read` returns it with the position of its last item,
    /// if more follow, and `encode` encodes it with the cursor of the next page.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] for a cursor of something else, and those of `read` and `encode`.
    pub(super) fn cached_page<P>(
        &self,
        context: &CallContext<'_>,
        PagedList { name, revision, form }: PagedList<'_>,
        cursor: Option<&str>,
        subject: impl FnOnce(PageSubject) -> ResultSubject,
        read: impl FnOnce(Option<&str>) -> Result<(P, Option<String>), Fault>,
        encode: impl FnOnce(P, Option<&str>) -> Result<Bytes, Fault>,
    ) -> Result<Bytes, Fault> {
        let (agent, labels) = (context.caller.agent.0, context.caller.labels());
        let purpose = purpose(name, &labels);
        let after = cursor.map(|cursor| self.cursor_signer.verify(&purpose, agent, cursor)).transpose()?;
        let page = PageSubject { after: after.clone(), labels: context.view.labels() };
        let key = context.key(subject(page), revision, form);
        self.results.page(key, (&labels, context.caller.tenant), || {
            let (page, last) = read(after.as_deref())?;
            let next = last.map(|last| self.cursor_signer.sign(&purpose, agent, &last));
            Ok((encode(page, next.as_deref())?, next.is_some()))
        })
    }
}

/// The purpose that the cursors of a list are signed for: the list, for callers with these labels.
fn purpose<'n>(list: &'n str, labels: &CallerLabels) -> Cow<'n, str> {
    match labels {
        CallerLabels::These(none) if none.is_empty() => Cow::Borrowed(list),
        CallerLabels::These(labels) => {
            let labels: Vec<_> = labels.iter().map(Label::as_str).collect();
            Cow::Owned(format!("{list} labelled {}", labels.join(" ")))
        }
        CallerLabels::Everything => Cow::Owned(format!("{list} with everything")),
    }
}
