//! Answers reads: from the cache of encoded results, or with contents of the catalog, which the dialect encodes.

use std::time::Duration;

use bytes::Bytes;

use super::call_handler::{CallContext, CallHandler, Dialect};
use super::result::ResultMembers;
use super::results::{ReadVersion, ResultForm, ResultSubject, Stamp};
use super::tools::blocks;
use super::tools::fetched::Fetched;
use crate::catalog::snapshot::view::Answering;
use crate::model::call::Contents;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::sources::Outside;

/// The significant bits of the time for which clients may cache content from a source.
const TIME_BITS: u32 = 7;

impl CallHandler {
    /// The encoded contents of a URI.
    ///
    /// # Errors
    /// [`Fault::ResourceNotFound`], and those of contents that are not in memory.
    pub(super) async fn read(
        &self,
        context: &CallContext<'_>,
        uri: &ResourceUri,
        form: ResultForm,
    ) -> Result<Bytes, Fault> {
        let agent = context.view.snapshot().revision;
        // One definition answers a URI for all callers, unless a definition of the agent has labels.
        let shared =
            (!context.view.has_labels()).then(|| context.read_key(ResultSubject::Read(uri.clone()), form));
        if let Some(kept) = shared.as_ref().and_then(|key| self.results.read_at(key, agent)) {
            return Ok(kept);
        }
        let answering = context.view.answering(uri)?;
        let fetched = if answering.is_sourced() {
            let fetched = self.catalog.fetch(context.caller, uri, &answering, context.source_use).await?;
            fetched.map(|fetched| Outside { left: rounded(fetched.left), ..fetched })
        } else {
            None
        };
        let stamp = fetched.as_ref().map(|fetched| context.stamp(fetched, form));
        let variant = answering.variant(uri);
        let key = shared
            .unwrap_or_else(|| context.read_key(ResultSubject::Variant(Box::new(variant.clone())), form));
        let is_rendered = matches!(answering, Answering::Rendered(..));
        let version = ReadVersion { variant, is_rendered, revision: answering.revision(), stamp };
        if let Some(kept) = self.results.read(&key, &version, agent) {
            return Ok(kept);
        }
        let title = matches!(form, ResultForm::Fetch { .. }).then(|| answering.title().to_owned());
        let contents = if let Some(fetched) = fetched {
            answering.contents(uri, &fetched)?
        } else {
            // Boxed: the future of a cached result is small to move.
            let contents = self.catalog.read_resource(context.caller, uri, answering, context.source_use);
            Box::pin(contents).await?
        };
        let result = match form {
            ResultForm::Method => Box::pin(self.encode_contents(context, &contents)).await?,
            ResultForm::Tool { offset, .. } => {
                let types = context.dialect.content_types();
                let blocks = blocks::of_contents(&contents, offset, self.tool_result_bytes, types)?;
                context.encode(ResultMembers::blocks(&blocks))?
            }
            ResultForm::Fetch { .. } => {
                let title = title.unwrap_or_default();
                let fetched = Fetched::of_contents(&title, &contents, self.tool_result_bytes)?;
                context.encode_object(&fetched.into_json()?)?
            }
        };
        // The revision differs if the definition changed meanwhile and its contents were purged.
        if contents.revision == version.revision && contents.fresh_for.is_some() == version.stamp.is_some() {
            self.results.keep_read(key, version, agent, (&result, context.caller.tenant));
        }
        Ok(result)
    }

    /// The result of a read: clients may cache content from a source for as long as the gateway does.
    async fn encode_contents(&self, context: &CallContext<'_>, contents: &Contents) -> Result<Bytes, Fault> {
        let dialect = match (context.dialect, contents.fresh_for) {
            (Dialect::Modern { .. }, Some(ttl)) => Dialect::Modern { ttl },
            (dialect, _) => dialect,
        };
        self.encode_long(context, dialect, contents, |contents| ResultMembers::contents(contents)).await
    }
}

impl CallContext<'_> {
    /// What a result with fetched content depends on beside its key.
    fn stamp(&self, fetched: &Outside, form: ResultForm) -> Stamp {
        let ttl = match (self.dialect, form) {
            (Dialect::Modern { .. }, ResultForm::Method) => Some(fetched.left),
            _ => None,
        };
        Stamp { fetched: fetched.id, ttl }
    }
}

/// A time of at most `left`, less by at most a 64th: few times differ, so that what is encoded with one is answered for a
/// while.
fn rounded(left: Duration) -> Duration {
    let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    let dropped = (u64::BITS - millis.leading_zeros()).saturating_sub(TIME_BITS);
    Duration::from_millis(millis >> dropped << dropped)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::rounded;

    #[test]
    fn rounded_times_are_few_and_never_longer() {
        let millis = |left| u64::try_from(rounded(Duration::from_millis(left)).as_millis()).unwrap();
        for left in (0..100_000).chain([86_400_000, u64::from(u32::MAX)]) {
            let rounded = millis(left);
            assert!(rounded <= left && left - rounded <= left / 64, "{left}: {rounded}");
        }
        assert_eq!((0..=5_000).map(millis).collect::<BTreeSet<_>>().len(), 463);
        assert_eq!(rounded(Duration::from_micros(7_999)), Duration::from_millis(7));
    }
}
