//! The cache of encoded results, by what is asked and by revision. A change needs no cache invalidation: a new result has the
//! new revision.
//!
//! Of lists and prompts the revision is part of the key, and the old result is evicted once it is unused. The result of a read
//! is found by its URI alone. It says which revision of the agent was known to answer so last: while that is the newest, nothing
//! else is looked up. Otherwise it has to be of the version of what answers the URI now, and is replaced if it is not.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use prefetch_index::prefetch_index;

use super::version::{ContentTypes, ToolMembers};
use crate::cache::{MemoryBudget, WeighedCache};
use crate::model::allocated::{allocated, behind_arc, shared_bytes};
use crate::model::call::List;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, ResourceUri, TenantId};
use crate::model::label::{CallerLabels, LabelsDigest};
use crate::model::prompt::PromptName;
use crate::model::scope::Revision;
use crate::model::variant::Variant;
use crate::sources::FetchId;

/// The number of rendered results that are remembered as requested once: half a megabyte, and as many results of a few
/// kilobytes as fill the cache.
const DOORKEEPER_SLOTS: usize = 1 << 16;

/// The maximum number of bytes of a result that the processor loads before they are copied.
const PREFETCHED_BYTES: usize = 2 << 10;

/// The subject of a result. What few reads need is boxed: results in use are more than a cache of the processor holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ResultSubject {
    /// The contents of a URI, in an agent without labels.
    Read(ResourceUri),
    /// What one definition answers a URI, in an agent with labels: which one does may differ between callers.
    Variant(Box<Variant>),
    /// A page of a list.
    Page(List, Box<PageSubject>),
    /// A page of the tools.
    Tools(Box<PageSubject>),
    /// About skills, and whether the answer is the same for anybody: all protocol revisions say so in the cache hints.
    Skills(Box<SkillsSubject>, bool),
    /// The messages of a prompt with these arguments, in these content types.
    Prompt(PromptName, Arc<BTreeMap<String, String>>, ContentTypes),
}

/// A page after a position, for callers with these labels. Of other subjects it is decided before a result is looked up
/// whether the caller sees them, or nothing of the agent has labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PageSubject {
    pub(super) after: Option<String>,
    pub(super) labels: CallerLabels,
}

impl PageSubject {
    fn heap(&self) -> usize {
        self.after.as_ref().map_or(0, |after| allocated(after.len())) + self.labels.heap()
    }
}

/// The subject of a result about skills.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum SkillsSubject {
    /// The entry of the skill of this URI.
    Entry(ResourceUri),
    /// A page of the list.
    Page(PageSubject),
    /// A page of a directory.
    Directory(ResourceUri, PageSubject),
}

impl SkillsSubject {
    fn heap(&self) -> usize {
        match self {
            Self::Entry(uri) => behind_arc(uri.as_str().len()),
            Self::Page(page) => page.heap(),
            Self::Directory(uri, page) => behind_arc(uri.as_str().len()) + page.heap(),
        }
    }
}

impl ResultSubject {
    /// Whether clients can make up any number of such subjects, most of which are never requested again.
    fn is_made_up(&self) -> bool {
        matches!(self, Self::Prompt(..))
    }

    /// The bytes of its heap memory.
    fn heap(&self) -> usize {
        match self {
            Self::Read(uri) => behind_arc(uri.as_str().len()),
            Self::Variant(variant) => {
                allocated(size_of::<Variant>()) + behind_arc(variant.uri.as_str().len()) + definition(variant)
            }
            Self::Page(_, page) | Self::Tools(page) => allocated(size_of::<PageSubject>()) + page.heap(),
            Self::Skills(subject, _) => allocated(size_of::<SkillsSubject>()) + subject.heap(),
            Self::Prompt(name, arguments, _) => {
                // With a place in a node of a map.
                let strings =
                    arguments.iter().map(|(name, value)| allocated(name.len()) + allocated(value.len()) + 80);
                behind_arc(name.as_str().len()) + strings.sum::<usize>()
            }
        }
    }
}

/// The dialect in which a result is encoded. All legacy revisions have the same results, except for prompt content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DialectKey {
    /// With the agent's description, as it was at this revision, and whether anybody is answered the same.
    Modern { described: Revision, public: bool },
    /// The result alone.
    Legacy,
}

/// The form of a result: that of the method, or that of the tool that stands for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ResultForm {
    /// Of the method.
    Method,
    /// Of the tool, in the members of a revision, from an offset in the text on.
    Tool { members: ToolMembers, offset: usize },
    /// Of the tool `fetch`, in the members of a revision.
    Fetch { members: ToolMembers },
}

impl ResultForm {
    /// Whether clients can make up any number of such forms.
    fn is_made_up(self) -> bool {
        matches!(self, Self::Tool { offset: 1.., .. })
    }
}

/// The key of an encoded result, which is the same for all callers who see the subject.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ResultKey {
    pub(super) agent: AgentId,
    pub(super) dialect: DialectKey,
    pub(super) subject: ResultSubject,
    pub(super) form: ResultForm,
    /// The timeline of the snapshot.
    pub(super) timeline: u64,
    /// The revision of the subject, not of the agent: results of unchanged subjects survive writes to others. `None` for a
    /// read, whose result has a version.
    pub(super) revision: Option<Revision>,
    /// The labels that a cursor in it is bound to; `None` without one.
    pub(super) cursor: Option<LabelsDigest>,
}

/// What the result of a read depends on beside its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ReadVersion {
    /// What answers the URI.
    pub(super) variant: Variant,
    /// Whether that is a template: clients can make up any number of URIs that it answers.
    pub(super) is_rendered: bool,
    /// The revision that last changed the answer.
    pub(super) revision: Revision,
    /// Of content from a source, which changes without a revision.
    pub(super) stamp: Option<Stamp>,
}

impl ReadVersion {
    /// The bytes of its heap memory, in a box.
    fn heap(&self) -> usize {
        allocated(size_of::<Self>()) + definition(&self.variant)
    }
}

/// What a result with content from a source depends on besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    /// The content.
    pub(super) fetched: FetchId,
    /// For how long a client may cache the result, if it says so.
    pub(super) ttl: Option<Duration>,
}

/// A result in memory.
#[derive(Debug)]
struct CachedResult {
    /// Of a read.
    version: Option<Box<ReadVersion>>,
    /// The revision of the agent at which this was known last to be the answer. 0 without a version, and for content from a
    /// source, which is asked at each request.
    answers_at: AtomicI64,
    result: Bytes,
}

impl CachedResult {
    /// The result. The processor begins to load it, since it is copied once the head of the answer is made; of a long one the
    /// beginning, since hardware prefetching loads the rest.
    fn prefetched(&self) -> Bytes {
        let lines = (0..self.result.len().min(PREFETCHED_BYTES)).step_by(64);
        lines.for_each(|line| prefetch_index(&self.result, line));
        self.result.clone()
    }

    fn set_answers_at(&self, agent: Revision) {
        let is_sourced = self.version.as_ref().is_some_and(|version| version.stamp.is_some());
        let agent = if is_sourced { 0 } else { agent.0 };
        // Where it changes: a write takes the memory from the other threads that use the result.
        if self.answers_at.load(Ordering::Relaxed) != agent {
            self.answers_at.store(agent, Ordering::Relaxed);
        }
    }
}

/// The encoded results in memory.
///
/// Registered content is cached on the first request. Rendered results, and those with content from a source, are cached on
/// the second: caching one that is never requested again would cost more than rendering it.
#[derive(Debug)]
pub(super) struct Results {
    kept: Arc<WeighedCache<ResultKey, CachedResult>>,
    doorkeeper: Doorkeeper,
}

impl Results {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self { kept: WeighedCache::new(budget, "results", |_| false), doorkeeper: Doorkeeper::new() }
    }

    pub(super) fn get(&self, key: &ResultKey) -> Option<Bytes> {
        self.kept.get_with(key, |kept| Some(kept.prefetched()))
    }

    /// The page of a list, in memory or as `make` makes it, which says whether it has a cursor. A page with one is kept for
    /// callers with these labels alone, since cursors are bound to all labels of a caller, and the page to those that count.
    pub(super) fn page(
        &self,
        key: ResultKey,
        (labels, tenant): (&CallerLabels, TenantId),
        make: impl FnOnce() -> Result<(Bytes, bool), Fault>,
    ) -> Result<Bytes, Fault> {
        let bound = || ResultKey { cursor: Some(labels.digest()), ..key.clone() };
        let kept = if self.kept.contains(&key) { self.get(&key) } else { self.get(&bound()) };
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let (result, has_cursor) = make()?;
        self.keep(if has_cursor { bound() } else { key }, &result, tenant);
        Ok(result)
    }

    /// The result of a read that is known to be the answer at this revision of the agent.
    pub(super) fn read_at(&self, key: &ResultKey, agent: Revision) -> Option<Bytes> {
        let is_current = |kept: &CachedResult| kept.answers_at.load(Ordering::Relaxed) == agent.0;
        self.kept.try_with(key, |kept| is_current(kept).then(|| kept.prefetched()))
    }

    /// The result of a read, if it has this version, which is the answer at this revision of the agent.
    pub(super) fn read(&self, key: &ResultKey, version: &ReadVersion, agent: Revision) -> Option<Bytes> {
        self.kept.get_with(key, |kept| {
            (kept.version.as_deref() == Some(version)).then(|| {
                kept.set_answers_at(agent);
                kept.prefetched()
            })
        })
    }

    /// Caches a new result of an agent of a tenant, if it is likely to be requested again.
    pub(super) fn keep(&self, key: ResultKey, result: &Bytes, tenant: TenantId) {
        if !key.subject.is_made_up() || self.doorkeeper.admit(&key, None) {
            self.insert(key, None, result, tenant);
        }
    }

    /// As [`keep`](Self::keep), for the result of a read with a version, in place of the one with another version.
    pub(super) fn keep_read(
        &self,
        key: ResultKey,
        version: ReadVersion,
        agent: Revision,
        (result, tenant): (&Bytes, TenantId),
    ) {
        let is_made_up = version.is_rendered || key.form.is_made_up();
        if version.stamp.is_none() && !is_made_up || self.doorkeeper.admit(&key, Some(&version)) {
            self.insert(key, Some((version, agent)), result, tenant);
        }
    }

    fn insert(
        &self,
        key: ResultKey,
        version: Option<(ReadVersion, Revision)>,
        result: &Bytes,
        tenant: TenantId,
    ) {
        // Copied, since the buffer that it was encoded into is up to twice as long.
        let result = Bytes::copy_from_slice(result);
        let (version, agent) = version.unzip();
        let boxed = version.as_ref().map_or(0, ReadVersion::heap);
        let heap = key.subject.heap() + boxed + shared_bytes(&result);
        let kept = CachedResult { version: version.map(Box::new), answers_at: AtomicI64::new(0), result };
        if let Some(agent) = agent {
            kept.set_answers_at(agent);
        }
        self.kept.insert(key, kept, Some(tenant), heap);
    }
}

/// The bytes of heap memory of the definition's name.
fn definition(variant: &Variant) -> usize {
    variant.definition.as_ref().map_or(0, |definition| allocated(definition.len()))
}

/// Hashes of the keys that were requested last, each in its slot of a fixed table, newer over older. A key may be
/// overwritten; its result is then cached one request later.
#[derive(Debug)]
struct Doorkeeper {
    hasher: RandomState,
    slots: Box<[AtomicU64]>,
}

impl Doorkeeper {
    fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            slots: (0..DOORKEEPER_SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Whether this key was requested before, with this version; records the request.
    fn admit(&self, key: &ResultKey, version: Option<&ReadVersion>) -> bool {
        let hash = self.hasher.hash_one((key, version));
        let slot = usize::try_from(hash % DOORKEEPER_SLOTS as u64).ok().and_then(|slot| self.slots.get(slot));
        slot.is_some_and(|slot| slot.swap(hash, Ordering::Relaxed) == hash)
    }
}

#[cfg(test)]
mod tests;
