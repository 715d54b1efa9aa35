//! Which of many URIs something answers: bounded, and off the async threads where it is more than a little work.

use std::sync::Arc;

use super::Catalog;
use super::snapshot::{AgentSnapshot, Definitions};
use crate::identity::grant::Caller;
use crate::model::fault::Fault;
use crate::model::uri::ResourceUri;

/// Most comparisons of URIs with templates for one request: some hundred milliseconds at the worst.
pub(super) const MOST_COMPARISONS: usize = 250_000;
/// Comparisons that are made where they are asked for: about a millisecond at the worst.
pub(super) const LIGHT_COMPARISONS: usize = 1_000;

impl Definitions {
    /// With how much a URI is compared to find out what answers it.
    pub(super) fn comparisons(&self, uri: &ResourceUri) -> usize {
        if self.resources.contains_key(uri) { 1 } else { 1 + self.templates.candidates(uri) }
    }

    /// Leaves those URIs that something answers.
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
    /// Leaves those URIs that something answers.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] where that takes more than a bounded number of comparisons with templates;
    /// [`Fault::Unavailable`] where too much of this kind is under way.
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
