//! Which of many URIs can be read: a bounded number of comparisons, on a blocking thread where there are many.

use std::sync::Arc;

use super::Catalog;
use super::snapshot::{AgentSnapshot, Definitions};
use crate::identity::grant::Caller;
use crate::model::fault::Fault;
use crate::model::uri::ResourceUri;

/// The maximum number of comparisons of URIs with templates for one request: a few hundred milliseconds at worst.
pub(super) const MOST_COMPARISONS: usize = 250_000;
/// The maximum number of comparisons on the async thread: about a millisecond at worst.
pub(super) const LIGHT_COMPARISONS: usize = 1_000;

impl Definitions {
    /// The number of comparisons that finding the definition of a URI takes.
    pub(super) fn comparisons(&self, uri: &ResourceUri) -> usize {
        if self.all.resources.contains_key(uri) { 1 } else { 1 + self.templates.candidates(uri) }
    }

    /// Retains the URIs that can be read.
    fn answered(&self, mut uris: Vec<ResourceUri>) -> Result<Vec<ResourceUri>, Fault> {
        let mut left = MOST_COMPARISONS;
        for uri in &uris {
            left = left.checked_sub(self.comparisons(uri)).ok_or_else(|| {
                Fault::invalid_params(format!(
                    "the URIs and the agent's resource templates take more than {MOST_COMPARISONS} comparisons; \
                     name fewer URIs"
                ))
            })?;
        }
        uris.retain(|uri| self.answers(uri));
        Ok(uris)
    }
}

impl Catalog {
    /// Retains the URIs that can be read.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] where that takes more than a bounded number of comparisons with templates;
    /// [`Fault::Unavailable`] where too many comparisons are in progress.
    pub async fn answered(
        &self,
        caller: &Caller,
        snapshot: &Arc<AgentSnapshot>,
        uris: Vec<ResourceUri>,
    ) -> Result<Vec<ResourceUri>, Fault> {
        let comparisons = |uris: &[ResourceUri]| {
            uris.iter().map(|uri| snapshot.definitions.comparisons(uri)).sum::<usize>()
        };
        if uris.len() <= LIGHT_COMPARISONS && comparisons(&uris) <= LIGHT_COMPARISONS {
            return snapshot.definitions.answered(uris);
        }
        let snapshot = Arc::clone(snapshot);
        self.renderer.run(caller.payer(), move || Ok(snapshot.definitions.answered(uris))).await?
    }
}
