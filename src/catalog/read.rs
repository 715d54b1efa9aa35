//! Reads: the contents of a URI, and the pages of lists (pagination), from memory if possible. Also filters the URIs that
//! can be read: a bounded number of template matches, on a blocking thread if there are many.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;

use super::Catalog;
use super::snapshot::view::{Answering, View};
use super::snapshot::{AgentCell, AgentPart, AgentSnapshot, LoadRequest};
use crate::identity::grant::Caller;
use crate::model::allocated::shared_bytes;
use crate::model::call::{Content, Contents, List, ListPage, Page};
use crate::model::caller::Payer;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, AgentRef, ResourceUri, Slug, TenantId};
use crate::model::label::CallerLabels;
use crate::model::listed::ListedResource;
use crate::model::resource::{Part, Resource};
use crate::model::skill::Skill;
use crate::store::StoreError;

/// A request that may take content from a connection.
pub trait SourceUse: Send + Sync {
    /// Records the connection.
    fn takes_from(&self, connection: &Slug);

    /// Releases what the request shares with others, before it waits for the source.
    fn before_wait(&self);
}

/// The number of attempts to read contents, which may be purged between reading a definition and reading its bytes.
const MAX_LOOKS: usize = 3;

impl Catalog {
    /// What the caller sees of its agent, at the newest revision known.
    ///
    /// # Errors
    /// [`Fault::Forbidden`] if the agent has just been deleted; [`Fault::StorageUnavailable`] if it is not in
    /// memory and the database is unreachable.
    pub async fn view(&self, caller: &Caller) -> Result<View, Fault> {
        self.view_of_part(caller, || None).await
    }

    /// As [`view`](Self::view), for a call that needs `part` alone, if that is known: of an agent that is not in memory and
    /// large, the view has nothing else. If the agent is not in memory, short contents of a resource are loaded with it.
    ///
    /// # Errors
    /// Those of [`view`](Self::view).
    pub async fn view_of_part(
        &self,
        caller: &Caller,
        part: impl FnOnce() -> Option<AgentPart>,
    ) -> Result<View, Fault> {
        let known = caller.handles.as_ref();
        let fresh = known.and_then(|known| self.agents.find_by(&known.agent_cell, AgentCell::fresh));
        let snapshot = if let Some(fresh) = fresh {
            fresh
        } else {
            self.snapshot_to_read(caller.payer(), caller.agent_ref(), caller.only_resources, part).await?
        };
        Ok(View::new(snapshot, || caller.labels()))
    }

    /// What a caller with these labels sees of an agent, at the newest revision known.
    ///
    /// # Errors
    /// Those of [`view`](Self::view).
    pub async fn view_with(&self, agent: AgentRef, labels: CallerLabels) -> Result<View, Fault> {
        let AgentRef { tenant, uid } = agent;
        let snapshot = self.snapshot_of(Payer::Tenant(tenant), tenant, uid).await?;
        Ok(View::new(snapshot, || labels))
    }

    pub(super) async fn snapshot_of(
        &self,
        payer: Payer,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Arc<AgentSnapshot>, Fault> {
        self.snapshot_to_read(payer, AgentRef { tenant, uid: agent }, false, || None).await
    }

    async fn snapshot_to_read(
        &self,
        payer: Payer,
        agent: AgentRef,
        only_resources: bool,
        part: impl FnOnce() -> Option<AgentPart>,
    ) -> Result<Arc<AgentSnapshot>, Fault> {
        // Without a reference to the cell: all callers without a handle would count it in one place.
        if let Some(fresh) = self.agents.find(agent.uid, AgentCell::fresh) {
            return Ok(fresh);
        }
        let timeline = || self.scopes.timeline();
        let cell = self.agents.get_or_create(agent.uid, Some(agent.tenant), |_, charge| {
            AgentCell::new(agent, timeline(), charge)
        });
        let part = part();
        let part = part.as_ref();
        if let Some(fresh) = cell.fresh_of(part) {
            self.load_all_if_due(payer, agent, &cell);
            return Ok(fresh);
        }
        if self.loader.answers_from_memory()
            && let Some(stale) = cell.stale_of(part)
        {
            return Ok(stale);
        }
        // Boxed, as every cold path below a hot one: the future of a read in memory is small to move.
        match Box::pin(self.load_snapshot(payer, agent, &cell, only_resources, part)).await {
            Ok(found) => found.ok_or(Fault::Forbidden),
            Err(error) => match cell.stale_of(part) {
                Some(stale) if self.loader.may_use_memory_after_failure().await => Ok(stale),
                _ => Err(error.into()),
            },
        }
    }

    async fn load_snapshot(
        &self,
        payer: Payer,
        agent: AgentRef,
        cell: &Arc<AgentCell>,
        only_resources: bool,
        part: Option<&AgentPart>,
    ) -> Result<Option<Arc<AgentSnapshot>>, StoreError> {
        let keep = |(hash, bytes)| self.keep_contents(agent, hash, &bytes);
        let request = Some(LoadRequest { only_resources, part, keep: &keep });
        let load = async || cell.snapshot(&self.store, &self.system, request).await;
        let loaded = self.loader.load(payer, load).await?;
        self.load_all_if_due(payer, agent, cell);
        Ok(loaded)
    }

    /// Loads all of an agent if parts of it have been read often, in the background. Meanwhile they are read on.
    fn load_all_if_due(&self, payer: Payer, agent: AgentRef, cell: &Arc<AgentCell>) {
        let Some(due) = cell.take_all_due() else { return };
        let (cell, loader) = (Arc::clone(cell), Arc::clone(&self.loader));
        let (store, system) = (self.store.clone(), self.system.clone());
        let stop = self.stop.clone();
        tokio::spawn(async move {
            let load = async || cell.snapshot(&store, &system, None).await;
            match stop.run_until_cancelled(loader.load(payer, load)).await {
                Some(Ok(_)) => due.loaded(),
                // Further reads try again.
                Some(Err(error)) => {
                    tracing::debug!(%error, agent = %agent.uid, "loading a large agent failed");
                }
                None => {}
            }
        });
    }

    fn keep_contents(&self, agent: AgentRef, hash: ContentHash, bytes: &Bytes) {
        let AgentRef { tenant, uid } = agent;
        self.contents.insert((uid, hash), bytes.clone(), Some(tenant), shared_bytes(bytes));
    }

    /// The maximum number of items on a page.
    pub fn page_size(&self) -> usize {
        self.limits.page_size
    }

    /// A page of a list, with the definitions after a key.
    pub fn list(&self, view: &View, list: List, after: Option<&str>) -> ListPage {
        view.list(list, after, self.limits.page_size)
    }

    /// A page of skills, with those after a root.
    pub fn skills(&self, view: &View, after: Option<&str>) -> Page<Arc<Skill>> {
        view.skills(after, self.limits.page_size)
    }

    /// A page of what is directly in a directory, after a URI.
    ///
    /// # Errors
    /// [`Fault::UnknownUri`].
    pub fn directory(
        &self,
        view: &View,
        uri: &ResourceUri,
        after: Option<&str>,
    ) -> Result<Page<ListedResource>, Fault> {
        let page = view.directory(uri.as_str(), after, self.limits.page_size);
        page.ok_or_else(|| Fault::UnknownUri { what: "directory", uri: uri.clone() })
    }

    /// The contents of a URI, from the definition that serves it.
    ///
    /// # Errors
    /// [`Fault::ResourceNotFound`] if no definition serves it any more; [`Fault::InvalidParams`] for values that cannot
    /// be rendered; [`Fault::Unavailable`] if too much is being rendered; those of [`view`](Self::view) if
    /// contents are not in memory; those of a source.
    pub async fn read_resource(
        &self,
        caller: &Caller,
        uri: &ResourceUri,
        mut answering: Answering,
        source_use: &dyn SourceUse,
    ) -> Result<Contents, Fault> {
        for _ in 0..MAX_LOOKS {
            if answering.is_sourced() {
                // Of an erased type: reads are deep enough without it for the compiler.
                let fetched = self.fetch(caller, uri, &answering, source_use).boxed().await?;
                let fetched = fetched.ok_or_else(|| Fault::ResourceNotFound(uri.clone()))?;
                return answering.contents(uri, &fetched);
            }
            let contents = match &answering {
                Answering::Registered(resource, _) | Answering::Mounted(resource, ..) => {
                    self.registered(caller, resource).await?
                }
                Answering::Rendered(found, _) => self.rendered(caller, uri, found).await?,
            };
            match contents {
                Some(contents) => return Ok(contents),
                None => answering = self.look_again(caller).await?.answering(uri)?,
            }
        }
        Err(Fault::StorageUnavailable)
    }

    /// A newer view, needed if contents of the current one are purged. The purge waits for long enough that
    /// only a replica that missed all notifications meanwhile gets here.
    pub(super) async fn look_again(&self, caller: &Caller) -> Result<View, Fault> {
        Box::pin(self.loader.sweep()).await?;
        self.view(caller).await
    }

    /// `None` if contents are purged already.
    async fn registered(&self, caller: &Caller, resource: &Resource) -> Result<Option<Contents>, Fault> {
        let parts = self.contents_of(caller, resource).await?;
        Ok(parts.map(|parts| Contents {
            uri: resource.uri.clone(),
            mime_type: resource.definition.mime_type.clone(),
            parts,
            revision: resource.revision,
            fresh_for: None,
        }))
    }

    /// The bytes of each part; `None` if some are purged already.
    async fn contents_of(&self, caller: &Caller, resource: &Resource) -> Result<Option<Vec<Content>>, Fault> {
        let cached = |hash| self.contents.get(&(caller.agent, hash));
        let missing: Vec<_> =
            resource.parts.iter().map(|part| part.hash).filter(|hash| cached(*hash).is_none()).collect();
        let loaded = if missing.is_empty() {
            BTreeMap::new()
        } else {
            Box::pin(self.load_contents(caller, &missing)).await?
        };
        let bytes = |part: &Part| loaded.get(&part.hash).cloned().or_else(|| cached(part.hash));
        Ok(resource.parts.iter().map(|part| Some(Content::stored(part, bytes(part)?))).collect())
    }

    pub(super) async fn load_contents(
        &self,
        caller: &Caller,
        hashes: &[ContentHash],
    ) -> Result<BTreeMap<ContentHash, Bytes>, StoreError> {
        let agent @ AgentRef { tenant, uid } = caller.agent_ref();
        let load = async || self.store.contents(tenant, uid, hashes).await;
        let loaded = self.loader.load(caller.payer(), load).await?;
        for (hash, bytes) in &loaded {
            self.keep_contents(agent, *hash, bytes);
        }
        Ok(loaded)
    }
}

/// The maximum number of comparisons of URIs with templates for one request: a few hundred milliseconds at worst.
pub(super) const MAX_COMPARISONS: usize = 250_000;
/// The maximum number of comparisons on the async thread: about a millisecond at worst.
pub(super) const LIGHT_COMPARISONS: usize = 1_000;

/// Retains the URIs that can be read.
fn answered(view: &View, mut uris: Vec<ResourceUri>) -> Result<Vec<ResourceUri>, Fault> {
    let mut left = MAX_COMPARISONS;
    for uri in &uris {
        left = left.checked_sub(view.comparisons(uri)).ok_or_else(|| {
            Fault::invalid_params(format!(
                "the URIs and the agent's resource templates take more than {MAX_COMPARISONS} comparisons; \
                 name fewer URIs"
            ))
        })?;
    }
    uris.retain(|uri| view.answering(uri).is_ok());
    Ok(uris)
}

impl Catalog {
    /// Retains the URIs that can be read.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] if that takes more than a bounded number of comparisons with templates;
    /// [`Fault::Unavailable`] if too many comparisons are in progress.
    pub async fn answered(
        &self,
        caller: &Caller,
        view: &View,
        uris: Vec<ResourceUri>,
    ) -> Result<Vec<ResourceUri>, Fault> {
        let comparisons = |uris: &[ResourceUri]| uris.iter().map(|uri| view.comparisons(uri)).sum::<usize>();
        if uris.len() <= LIGHT_COMPARISONS && comparisons(&uris) <= LIGHT_COMPARISONS {
            return answered(view, uris);
        }
        let view = view.clone();
        self.renderer.run(caller.payer(), move || Ok(answered(&view, uris))).await?
    }
}
