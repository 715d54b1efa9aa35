//! The cache of encoded results, by subject and revision. A change needs no cache invalidation: the key of the new result
//! has the new revision, and the old result is evicted once it is unused. Content from a source changes without a revision:
//! its result has a stamp, and is replaced by the first one with another stamp.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use uri_template::UriTemplate;

use super::version::{ContentTypes, ToolMembers};
use crate::cache::{MemoryBudget, WeighedCache};
use crate::model::allocated::{allocated, behind_arc, shared_bytes};
use crate::model::call::List;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, ResourceUri, Slug, TenantId};
use crate::model::label::{CallerLabels, LabelsDigest};
use crate::model::prompt::PromptName;
use crate::model::scope::Revision;
use crate::sources::FetchId;

/// The number of rendered results that are remembered as requested once: half a megabyte, and as many results of a few
/// kilobytes as fill the cache.
const DOORKEEPER_SLOTS: usize = 1 << 16;

/// The subject of a result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ResultSubject {
    /// The contents of a registered resource.
    Resource(ResourceUri),
    /// The file of this mount that has a URI.
    Mounted(ResourceUri, Slug),
    /// What this template answers to a URI.
    Rendered(ResourceUri, UriTemplate),
    /// The page of a list after a position, for callers with these labels. What other subjects are visible is decided
    /// before a result is looked up.
    Page(List, Option<String>, CallerLabels),
    /// The page of the tools after a position, for callers with these labels.
    Tools(Option<String>, CallerLabels),
    /// About skills, and whether anybody is answered the same: every revision is sent that.
    Skills(SkillsSubject, bool),
    /// The messages of a prompt with these arguments, in these content types.
    Prompt(PromptName, Arc<BTreeMap<String, String>>, ContentTypes),
}

/// The subject of a result about skills.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum SkillsSubject {
    /// The entry of the skill of this URI.
    Entry(ResourceUri),
    /// The page of the list after a position, for callers with these labels.
    Page(Option<String>, CallerLabels),
    /// The page of a directory after a position, for callers with these labels.
    Directory(ResourceUri, Option<String>, CallerLabels),
}

impl SkillsSubject {
    fn heap(&self) -> usize {
        let position = |after: &Option<String>| after.as_ref().map_or(0, |after| allocated(after.len()));
        match self {
            Self::Entry(uri) => behind_arc(uri.as_str().len()),
            Self::Page(after, labels) => position(after) + labels.heap(),
            Self::Directory(uri, after, labels) => {
                behind_arc(uri.as_str().len()) + position(after) + labels.heap()
            }
        }
    }
}

impl ResultSubject {
    /// Whether clients can make up any number of such subjects, most of which are never requested again.
    fn is_made_up(&self) -> bool {
        matches!(self, Self::Rendered(..) | Self::Prompt(..))
    }

    /// The bytes of its heap memory. A template and the name of a mount are in memory anyway.
    fn heap(&self) -> usize {
        match self {
            Self::Resource(uri) | Self::Mounted(uri, _) | Self::Rendered(uri, _) => {
                behind_arc(uri.as_str().len())
            }
            Self::Page(_, after, labels) | Self::Tools(after, labels) => {
                after.as_ref().map_or(0, |after| allocated(after.len())) + labels.heap()
            }
            Self::Skills(subject, _) => subject.heap(),
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
    /// The revision of the subject, not of the agent: results of unchanged subjects survive writes to others.
    pub(super) revision: Revision,
    /// The labels that a cursor in it is bound to; `None` without one.
    pub(super) cursor: Option<LabelsDigest>,
}

/// What a result with content from a source depends on beside its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    /// The content.
    pub(super) fetched: FetchId,
    /// For how long a client may cache the result, if it says so.
    pub(super) ttl: Option<Duration>,
}

/// The encoded results in memory.
///
/// Registered content is cached on the first request. Rendered results, and those with content from a source, are cached on
/// the second: caching one that is never requested again would cost more than rendering it.
#[derive(Debug)]
pub(super) struct Results {
    kept: Arc<WeighedCache<ResultKey, (Option<Stamp>, Bytes)>>,
    doorkeeper: Doorkeeper,
}

impl Results {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self { kept: WeighedCache::new(budget, "results", |_| false), doorkeeper: Doorkeeper::new() }
    }

    pub(super) fn get(&self, key: &ResultKey) -> Option<Bytes> {
        self.get_stamped(key, None)
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

    /// The result of a key with this stamp.
    pub(super) fn get_stamped(&self, key: &ResultKey, stamp: Option<Stamp>) -> Option<Bytes> {
        let (kept, result) = self.kept.get(key)?;
        (kept == stamp).then_some(result)
    }

    /// Caches a new result of an agent of a tenant, if it is likely to be requested again.
    pub(super) fn keep(&self, key: ResultKey, result: &Bytes, tenant: TenantId) {
        self.keep_stamped(key, None, result, tenant);
    }

    /// As [`keep`](Self::keep), in place of a result of the key with another stamp.
    pub(super) fn keep_stamped(
        &self,
        key: ResultKey,
        stamp: Option<Stamp>,
        result: &Bytes,
        tenant: TenantId,
    ) {
        let is_rare = stamp.is_some() || key.subject.is_made_up() || key.form.is_made_up();
        if !is_rare || self.doorkeeper.admit(&key, stamp) {
            // Copied, since the buffer that it was encoded into is up to twice as long.
            let exact = Bytes::copy_from_slice(result);
            let heap = key.subject.heap() + shared_bytes(&exact);
            self.kept.insert(key, (stamp, exact), Some(tenant), heap);
        }
    }
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

    /// Whether this key was requested before, with this stamp; records the request.
    fn admit(&self, key: &ResultKey, stamp: Option<Stamp>) -> bool {
        let hash = self.hasher.hash_one((key, stamp));
        let slot = usize::try_from(hash % DOORKEEPER_SLOTS as u64).ok().and_then(|slot| self.slots.get(slot));
        slot.is_some_and(|slot| slot.swap(hash, Ordering::Relaxed) == hash)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use uri_template::UriTemplate;
    use uuid::Uuid;

    use super::{DOORKEEPER_SLOTS, DialectKey, ResultForm, ResultKey, ResultSubject, Results, Stamp};
    use crate::cache::MemoryBudget;
    use crate::mcp::version::ContentTypes;
    use crate::model::call::List;
    use crate::model::ids::{AgentId, ResourceUri, TenantId};
    use crate::model::label::{CallerLabels, Labels};
    use crate::model::prompt::PromptName;
    use crate::model::scope::Revision;
    use crate::sources::FetchId;

    const RESULT: Bytes = Bytes::from_static(b"{}");
    const TENANT: TenantId = TenantId(Uuid::nil());

    fn key(subject: ResultSubject) -> ResultKey {
        let (agent, dialect) = (AgentId(Uuid::nil()), DialectKey::Legacy);
        ResultKey {
            agent,
            dialect,
            subject,
            form: ResultForm::Method,
            timeline: 0,
            revision: Revision(1),
            cursor: None,
        }
    }

    fn uri(text: &str) -> ResourceUri {
        ResourceUri::parse(text).unwrap()
    }

    fn rendered(number: usize) -> ResultKey {
        key(ResultSubject::Rendered(uri(&format!("a:{number}")), UriTemplate::parse("a:{n}").unwrap()))
    }

    #[test]
    fn registered_results_are_cached_at_once_and_rendered_ones_on_the_second_request() {
        let results = Results::new(&MemoryBudget::new(1 << 20));
        let prompt =
            ResultSubject::Prompt(PromptName::parse("p").unwrap(), Arc::default(), ContentTypes::First);
        for (subject, times) in
            [(ResultSubject::Resource(uri("a:b")), 1), (rendered(1).subject, 2), (prompt, 2)]
        {
            let key = key(subject);
            for time in 0..times {
                assert_eq!(results.get(&key), None, "{key:?}, asked for {time} times");
                results.keep(key.clone(), &RESULT, TENANT);
            }
            assert_eq!(results.get(&key), Some(RESULT), "{key:?}");
        }
    }

    #[test]
    fn another_revision_counts_as_not_requested() {
        let results = Results::new(&MemoryBudget::new(1 << 20));
        let changed = ResultKey { revision: Revision(2), ..rendered(1) };
        results.keep(rendered(1), &RESULT, TENANT);
        results.keep(changed.clone(), &RESULT, TENANT);
        assert_eq!(results.get(&changed), None);
    }

    #[test]
    fn result_with_another_stamp_replaces_the_kept_one() {
        let budget = MemoryBudget::new(1 << 20);
        let results = Results::new(&budget);
        let (key, newer) = (key(ResultSubject::Resource(uri("a:b"))), Bytes::from_static(b"[]"));
        let stamp =
            |fetched, ttl| Some(Stamp { fetched: FetchId(fetched), ttl: Some(Duration::from_millis(ttl)) });
        let mut before = None;
        for (stamp, result) in [(stamp(1, 8), &RESULT), (stamp(2, 8), &newer), (stamp(2, 7), &RESULT)] {
            for _ in 0..2 {
                assert_eq!(results.get_stamped(&key, stamp), None);
                results.keep_stamped(key.clone(), stamp, result, TENANT);
            }
            assert_eq!(results.get_stamped(&key, stamp), Some(result.clone()));
            assert_eq!((results.get_stamped(&key, before), results.get(&key)), (None, None));
            before = stamp;
        }
        assert_eq!(budget.stats()[0].entries, 1);
    }

    #[test]
    fn content_that_always_differs_fills_no_memory() {
        let budget = MemoryBudget::new(1 << 30);
        let results = Results::new(&budget);
        for number in 0..1_000 {
            let stamp = Some(Stamp { fetched: FetchId(number), ttl: None });
            results.keep_stamped(key(ResultSubject::Resource(uri("a:b"))), stamp, &RESULT, TENANT);
        }
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn requests_that_all_differ_fill_no_memory() {
        let budget = MemoryBudget::new(1 << 30);
        let results = Results::new(&budget);
        for number in 0..4 * DOORKEEPER_SLOTS {
            results.keep(rendered(number), &RESULT, TENANT);
        }
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn pages_for_ten_thousand_label_sets_stay_within_the_budget() {
        let budget = MemoryBudget::new(8 << 20);
        let results = Results::new(&budget);
        let result = Bytes::from(vec![b'x'; 10_000]);
        let page = |number: usize| {
            let labels = Labels::parse([format!("label-{number}").as_str()]).unwrap();
            key(ResultSubject::Page(List::Resources, None, CallerLabels::These(labels)))
        };
        for number in 0..10_000 {
            results.keep(page(number), &result, TENANT);
            assert!(budget.used() <= 8 << 20);
        }
        assert_eq!(results.get(&page(9_999)), Some(result));
        assert!((0..10_000).filter(|number| results.get(&page(*number)).is_some()).count() < 900);
    }
}
