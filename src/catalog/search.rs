//! Search in what an agent publishes: an inverted index in memory for each agent that is searched, built in the background
//! when it is first needed and then patched with what changed.
//!
//! An index answers for the snapshot that it was made from, and only if no newer one is known. What a caller does not see
//! is neither found nor counted ([`search::Index::search`]), and what is shown of a result comes from the caller's
//! [`View`].

mod agent_index;
mod build;
mod document;
mod request;
mod searches;
mod shown;

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use self::agent_index::AgentIndex;
use self::build::Builder;
pub use self::document::SearchedKind;
pub use self::request::{DEFAULT_RESULTS, MAX_RESULTS, SearchRequest};
pub(super) use self::searches::Searches;
use self::shown::Draft;
pub use self::shown::Found;
use super::Catalog;
use super::snapshot::AgentSnapshot;
use super::snapshot::view::View;
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::ids::AgentRef;
use crate::model::label::CallerLabels;

/// How many definitions are examined first for each result: each of several mounts may list a file that one of them answers.
const CANDIDATES: usize = 16;
/// How many are examined where too few of these are left.
const MORE_CANDIDATES: usize = 10_000;

impl Catalog {
    /// The definitions of an agent that match a query, of those that a caller with these labels sees; the best first.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] while the index is built, or if too much is searched for; those of
    /// [`view_with`](Self::view_with).
    pub async fn search(
        &self,
        payer: Payer,
        agent: AgentRef,
        labels: CallerLabels,
        request: SearchRequest,
    ) -> Result<Vec<Found>, Fault> {
        let snapshot = self.snapshot_of(payer, agent.tenant, agent.uid).await?;
        let index = self.searches.of(agent);
        Box::pin(self.bring_up_to_date(payer, agent, &index, snapshot)).await?;
        let (asked, document_bytes) = (request.clone(), self.searches.limits.document_bytes);
        let find = move || Ok(drafts(&index, &asked, &labels, document_bytes));
        let drafts = self.renderer.run(payer, find).await?.ok_or(Fault::BUSY)?;
        self.show(payer, agent, drafts, &request.query).await
    }

    /// Makes an index answer for a snapshot or a newer one.
    async fn bring_up_to_date(
        &self,
        payer: Payer,
        agent: AgentRef,
        index: &Arc<AgentIndex>,
        snapshot: Arc<AgentSnapshot>,
    ) -> Result<(), Fault> {
        if index.answers_for(&snapshot) {
            return Ok(());
        }
        let deadline = Instant::now() + self.searches.limits.wait;
        let lock = timeout_at(deadline, index.lock_updates()).await.map_err(|_| Fault::BUSY)?;
        if index.answers_for(&snapshot) {
            return Ok(());
        }
        let builder = self.builder((payer, agent), index, snapshot);
        let (done, ended) = oneshot::channel();
        let stop = self.stop.clone();
        // Detached: it goes on while callers give up, and the next one finds it done.
        tokio::spawn(async move {
            let updated = builder.update();
            let outcome = stop.run_until_cancelled(updated).await.unwrap_or(Err(Fault::BUSY));
            drop(lock);
            // The request of a search that took too long has ended.
            done.send(outcome).ok();
        });
        timeout_at(deadline, ended).await.ok().and_then(Result::ok).unwrap_or(Err(Fault::BUSY))
    }

    /// Brings the index of an agent up to date with a snapshot.
    fn builder(
        &self,
        (payer, agent): (Payer, AgentRef),
        index: &Arc<AgentIndex>,
        snapshot: Arc<AgentSnapshot>,
    ) -> Builder {
        Builder {
            store: self.store.clone(),
            loader: Arc::clone(&self.loader),
            builds: Arc::clone(&self.searches.builds),
            patches: Arc::clone(&self.searches.patches),
            document_bytes: self.searches.limits.document_bytes,
            payer,
            agent,
            index: Arc::clone(index),
            snapshot,
        }
    }
}

/// What is shown of the best definitions that match; `None` if the index is empty. Something else may answer the URI of a file
/// that matches: once more candidates are examined where too few are left of them.
fn drafts(
    index: &AgentIndex,
    request: &SearchRequest,
    labels: &CallerLabels,
    document_bytes: usize,
) -> Option<Vec<Draft>> {
    let first = CANDIDATES * request.limit;
    let mut drafts = Vec::new();
    for candidates in [first, MORE_CANDIDATES.max(first)] {
        let (snapshot, subjects) = index.find(request, labels, candidates)?;
        let view = View::new(snapshot, || labels.clone());
        let answered =
            subjects.iter().filter_map(|subject| Draft::of_subject(&view, subject, document_bytes));
        drafts = answered.take(request.limit).collect();
        if drafts.len() == request.limit || subjects.len() < candidates {
            break;
        }
    }
    Some(drafts)
}
