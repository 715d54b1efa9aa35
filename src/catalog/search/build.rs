//! Building an index, and patching it with what changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::spawn_blocking;

use super::agent_index::{AgentIndex, IndexExtent, Indexed};
use super::document::{Document, SearchIndex, Searched, SearchedSubject, insert_file};
use crate::cache::{FairSemaphore, Loader};
use crate::catalog::snapshot::view::View;
use crate::catalog::snapshot::{AgentSnapshot, ListedFile};
use crate::model::caller::Payer;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::ids::AgentRef;
use crate::model::prompt::Prompt;
use crate::model::resource::Resource;
use crate::model::skill::Skill;
use crate::model::template::ResourceTemplate;
use crate::store::Store;

/// How long a build or a patch waits for others.
const WAIT: Duration = Duration::from_mins(1);
/// The maximum number of definitions, and the bytes of their texts, with which an index is patched; with more it is built
/// anew.
const MAX_PATCHED: (usize, usize) = (1_000, 8 << 20);
/// The maximum number of definitions, and about the most bytes of texts, that are loaded together.
const BATCH: (usize, usize) = (256, 4 << 20);

/// Brings the index of an agent up to date with a snapshot. The caller has the lock for changing it.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) store: Store,
    pub(super) loader: Arc<Loader>,
    /// The builds in progress.
    pub(super) builds: Arc<FairSemaphore<Payer>>,
    /// The patches in progress.
    pub(super) patches: Arc<FairSemaphore<Payer>>,
    /// The maximum number of bytes of a definition's contents that are indexed.
    pub(super) document_bytes: usize,
    pub(super) payer: Payer,
    pub(super) agent: AgentRef,
    pub(super) index: Arc<AgentIndex>,
    pub(super) snapshot: Arc<AgentSnapshot>,
}

/// What an index lacks to answer for a snapshot.
#[derive(Default)]
struct Missing {
    documents: Vec<Arc<dyn Document>>,
    files: Vec<ListedFile>,
    removed: Vec<SearchedSubject>,
}

impl Missing {
    /// What changed since an older snapshot; everything without one, except the files of mounts.
    fn since(older: Option<Arc<AgentSnapshot>>, snapshot: Arc<AgentSnapshot>) -> Self {
        let (older, view) = (older.map(View::unfiltered), View::unfiltered(snapshot));
        let mut missing = Self::default();
        missing.add::<Resource>(older.as_ref(), &view);
        missing.add::<ResourceTemplate>(older.as_ref(), &view);
        missing.add::<Prompt>(older.as_ref(), &view);
        missing.add::<Skill>(older.as_ref(), &view);
        missing
    }

    /// With the files that changed; once they are too many for a patch, the others are left out.
    fn with_files(mut self, older: Arc<AgentSnapshot>, snapshot: Arc<AgentSnapshot>) -> Self {
        let (older, view) = (View::unfiltered(older), View::unfiltered(snapshot));
        let (added, removed) = view.files_since(&older, MAX_PATCHED.0);
        self.files = added;
        self.removed
            .extend(removed.into_iter().map(|file| SearchedSubject::File(file.mount.tree_id, file.suffix)));
        self
    }

    fn add<K: Searched>(&mut self, older: Option<&View>, view: &View) {
        let (added, removed) = view.changed_since::<K>(older);
        self.documents.extend(added.into_iter().map(|definition| definition as Arc<dyn Document>));
        self.removed.extend(removed.iter().map(K::subject));
    }

    /// Whether the index is patched with it, instead of being built anew.
    fn is_patch(&self, document_bytes: usize) -> bool {
        let bytes = self.documents.iter().map(|document| text_bytes(&**document, document_bytes));
        let count = self.documents.len() + self.files.len() + self.removed.len();
        count <= MAX_PATCHED.0 && bytes.sum::<usize>() <= MAX_PATCHED.1
    }
}

fn text_bytes(document: &dyn Document, most: usize) -> usize {
    document.contents_within(most).iter().map(|(_, bytes)| bytes).sum()
}

/// The number of documents, at least one, that are loaded together.
fn batch(documents: &[Arc<dyn Document>], most: usize) -> usize {
    let mut bytes = 0;
    let fits = documents.iter().take(BATCH.0).take_while(|document| {
        let fits = bytes < BATCH.1;
        bytes += text_bytes(&***document, most);
        fits
    });
    fits.count()
}

impl Builder {
    /// Patches the index, or builds it.
    pub(super) async fn update(self) -> Result<(), Fault> {
        let made_from = self.index.made_from().filter(|(old, _)| old.timeline == self.snapshot.timeline);
        if let Some((old, extent)) = made_from {
            let _permit = self.patches.acquire(self.payer, WAIT).await.ok_or(Fault::BUSY)?;
            let snapshot = Arc::clone(&self.snapshot);
            let compare = move || {
                let missing = Missing::since(Some(Arc::clone(&old)), Arc::clone(&snapshot));
                if extent == IndexExtent::Full { missing.with_files(old, snapshot) } else { missing }
            };
            let missing = blocking(compare).await?;
            let most = self.most(extent);
            if missing.is_patch(most) && self.patch(missing, most).await? {
                return Ok(());
            }
        }
        self.index.set(None);
        let _permit = self.builds.acquire(self.payer, WAIT).await.ok_or(Fault::BUSY)?;
        for extent in [IndexExtent::Full, IndexExtent::WithoutFiles, IndexExtent::Definitions] {
            if self.build(extent).await? {
                return Ok(());
            }
        }
        tracing::warn!(agent = %self.agent.uid, "index of an agent is too large for cache.bytes");
        Err(Fault::BUSY)
    }

    /// How many bytes of a definition's contents are indexed.
    fn most(&self, extent: IndexExtent) -> usize {
        if extent == IndexExtent::Definitions { 0 } else { self.document_bytes }
    }

    /// Returns whether there is memory for the index.
    async fn patch(&self, missing: Missing, most: usize) -> Result<bool, Fault> {
        let texts = self.load(&missing.documents, most).await?;
        let (index, snapshot) = (Arc::clone(&self.index), Arc::clone(&self.snapshot));
        let change = move |state: &mut Indexed| {
            for subject in &missing.removed {
                state.index.remove(subject);
            }
            for document in &missing.documents {
                document.insert(&mut state.index, &texts, most);
            }
            for ListedFile { mount, suffix } in &missing.files {
                insert_file(&mut state.index, mount, suffix);
            }
            state.snapshot = snapshot;
        };
        blocking(move || index.patch(change)).await
    }

    /// Returns whether there is memory for the index.
    async fn build(&self, extent: IndexExtent) -> Result<bool, Fault> {
        let (snapshot, most) = (Arc::clone(&self.snapshot), self.most(extent));
        let Missing { mut documents, .. } = blocking(move || Missing::since(None, snapshot)).await?;
        let mut index = SearchIndex::new();
        while !documents.is_empty() {
            let rest = documents.split_off(batch(&documents, most));
            let texts = self.load(&documents, most).await?;
            let batch = std::mem::replace(&mut documents, rest);
            index = blocking(move || {
                for document in batch {
                    document.insert(&mut index, &texts, most);
                }
                index
            })
            .await?;
            if !self.index.charge_build(&index) {
                return Ok(false);
            }
        }
        if extent == IndexExtent::Full {
            match self.with_files(index).await? {
                Some(with_files) => index = with_files,
                None => return Ok(false),
            }
        }
        let (own, snapshot) = (Arc::clone(&self.index), Arc::clone(&self.snapshot));
        blocking(move || own.set(Some(Indexed { index: index.compacted(), snapshot, extent }))).await
    }

    /// Adds the files of mounts to an index; `None` if there is no memory for them.
    async fn with_files(&self, mut index: SearchIndex) -> Result<Option<SearchIndex>, Fault> {
        let mounts: Vec<_> = View::unfiltered(Arc::clone(&self.snapshot)).mounts().cloned().collect();
        for mount in mounts {
            let view = View::unfiltered(Arc::clone(&self.snapshot));
            index = blocking(move || {
                for (suffix, _) in view.entries(&mount) {
                    insert_file(&mut index, &mount, suffix);
                }
                index
            })
            .await?;
            if !self.index.charge_build(&index) {
                return Ok(None);
            }
        }
        Ok(Some(index))
    }

    /// The beginnings of the contents of definitions. Those that are purged already are not indexed: a newer snapshot
    /// lacks them.
    async fn load(
        &self,
        documents: &[Arc<dyn Document>],
        most: usize,
    ) -> Result<BTreeMap<ContentHash, Bytes>, Fault> {
        let contents = documents.iter().flat_map(|document| document.contents_within(most));
        let hashes: BTreeSet<_> = contents.map(|(hash, _)| hash).collect();
        if hashes.is_empty() {
            return Ok(BTreeMap::new());
        }
        let hashes: Vec<_> = hashes.into_iter().collect();
        let AgentRef { tenant, uid } = self.agent;
        let load = async || self.store.content_prefixes(tenant, uid, &hashes, most).await;
        Ok(self.loader.load(self.payer, load).await?)
    }
}

/// Runs work that takes long on a thread of its own. The caller bounds how much of it runs.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    spawn_blocking(work).await.map_err(|error| Fault::Internal(error.to_string()))
}
