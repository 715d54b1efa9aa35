//! A cache cell: cached facts of one scope, with the rule of cache invalidation that no answer is older than the newest
//! known revision of the scope.
//!
//! A cell exists before anything is loaded into it, so that the change feed can raise its `wanted` revision. A load
//! reads head and rows in one snapshot and is kept only if its revision is not below `wanted`. If the cell is behind
//! `wanted`, a reader first catches up: it reads the missed changes and drops the facts that they invalidate.

use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::Mutex;

use super::memory_budget::Charge;
use super::scope_map::{ScopeCell, WantedRevision};
use crate::model::feed::BoxFuture;
use crate::model::scope::{Change, ChangeKind, Revision, Scope};
use crate::model::scope_changes::ScopeChanges;
use crate::model::system::{FailPoint, System};
use crate::store::{Store, StoreError};

/// The maximum number of changes to catch up with; a cell further behind drops all facts instead.
const MAX_CHANGES: usize = 1_000;

/// How long a commit whose response was lost may still take effect: longer than the database keeps a transaction idle.
const DOUBT: Duration = Duration::from_mins(1);
/// The maximum number of changes in doubt; above it all facts of the scope are in doubt.
const MAX_DOUBTS: usize = 1_000;

/// Facts about a scope, which changes invalidate.
pub trait Invalidate: Default + Send + Sync + 'static {
    /// Drops the facts that a change invalidates.
    fn invalidate(&mut self, change: &Change);

    /// The bytes of heap memory of the facts.
    fn heap(&self) -> usize;
}

/// Cached facts of one scope.
#[derive(Debug)]
pub struct Cell<H> {
    scope: Scope,
    wanted: WantedRevision,
    state: RwLock<State<H>>,
    catching_up: Mutex<()>,
    /// Of the facts.
    charge: Charge,
}

#[derive(Debug)]
struct State<H> {
    /// How often the cell was emptied: what was read before then is not kept.
    timeline: u64,
    /// Every cached fact is as of this revision or a newer one; `None` while nothing was kept.
    applied: Option<Revision>,
    facts: H,
    /// Changes of which it is not known whether they were committed, and until when that may still happen.
    doubts: Vec<(Instant, Change)>,
}

impl<H: Invalidate> State<H> {
    /// Drops the facts that changes in doubt invalidate.
    fn drop_doubtful(&mut self) {
        if self.doubts.is_empty() {
            return;
        }
        let now = Instant::now();
        self.doubts.retain(|(until, _)| *until > now);
        self.doubts.iter().for_each(|(_, change)| self.facts.invalidate(change));
    }
}

impl<H: Invalidate> Cell<H> {
    /// Creates an empty cell, whose facts are charged to `charge`.
    pub fn new(scope: Scope, charge: Charge) -> Self {
        let state =
            RwLock::new(State { timeline: 0, applied: None, facts: H::default(), doubts: Vec::new() });
        Self { scope, wanted: WantedRevision::default(), state, catching_up: Mutex::new(()), charge }
    }

    /// Changes the facts, and what is charged for them.
    fn change<T>(&self, change: impl FnOnce(&mut State<H>) -> T) -> T {
        let mut state = self.state.write();
        let changed = change(&mut state);
        self.charge.set(state.facts.heap());
        changed
    }

    fn wanted(&self) -> Revision {
        self.wanted.get()
    }

    /// The revision that is applied, where it is older than the one wanted. Takes the lock once: a second read lock would
    /// wait for a writer that waits for the first.
    fn behind(&self) -> Option<Revision> {
        let wanted = self.wanted();
        self.state.read().applied.filter(|applied| *applied < wanted)
    }

    /// Empties the cell: the database is on another timeline, whose revisions mean something else.
    pub fn restart(&self) {
        self.change(|state| {
            self.wanted.reset();
            let (timeline, doubts) = (state.timeline + 1, std::mem::take(&mut state.doubts));
            *state = State { timeline, applied: None, facts: H::default(), doubts };
        });
    }

    /// The bytes that are charged for the facts.
    pub fn charged(&self) -> usize {
        self.charge.bytes()
    }

    /// How often the cell was emptied.
    pub fn timeline(&self) -> u64 {
        self.state.read().timeline
    }

    /// A cached fact, unless the cell is behind.
    pub fn get<T>(&self, find: impl FnOnce(&H) -> Option<T>) -> Option<T> {
        let state = self.state.read();
        if state.applied? < self.wanted() { None } else { find(&state.facts) }
    }

    /// A cached fact, however old: for when the database is unreachable and memory is still trusted.
    pub fn get_stale<T>(&self, find: impl FnOnce(&H) -> Option<T>) -> Option<T> {
        find(&self.state.read().facts)
    }

    /// Loads a fact with the revision of the scope, both in one statement, and keeps the fact unless the scope has
    /// moved on meanwhile.
    ///
    /// The answer is as new as anything known when the call began, kept or not.
    pub async fn load<T>(
        &self,
        system: &System,
        point: FailPoint,
        read: impl Future<Output = Result<(Option<Revision>, T), StoreError>>,
        keep: impl FnOnce(&mut H, &T),
    ) -> Result<T, StoreError> {
        let timeline = self.timeline();
        let (revision, fact) = read.await?;
        system.pause(point).await;
        if let Some(revision) = revision {
            self.keep(revision, timeline, |facts| keep(facts, &fact));
        }
        Ok(fact)
    }

    /// Keeps what was read at `loaded`, unless a newer change is known, or was known and is applied: nothing would
    /// invalidate it again. If the facts become too many for one cell, all are dropped, and loaded again one by one.
    pub fn keep(&self, loaded: Revision, timeline: u64, keep: impl FnOnce(&mut H)) {
        let kept = self.change(|state| {
            if state.timeline != timeline {
                return None;
            }
            let applied = *state.applied.get_or_insert(loaded);
            if loaded < self.wanted() || loaded < applied {
                return None;
            }
            keep(&mut state.facts);
            state.drop_doubtful();
            Some(state.facts.heap())
        });
        if kept.is_some_and(|heap| heap > self.charge.most()) {
            self.change(|state| state.facts = H::default());
        }
        self.charge.make_room();
    }

    /// Reads the changes that the cell has missed and drops the facts that they invalidate.
    pub async fn apply_changes(&self, store: &Store) -> Result<(), StoreError> {
        let _one_at_a_time = self.catching_up.lock().await;
        let timeline = self.timeline();
        let Some(applied) = self.behind() else { return Ok(()) };
        let announced = self.wanted.announced();
        let read = store.changes_after(self.scope, applied, MAX_CHANGES + 1).await?;
        self.change(|state| {
            if state.timeline != timeline {
                return;
            }
            let revision = match read {
                Some(ScopeChanges { head, changes, .. })
                    if head.floor <= applied && changes.len() <= MAX_CHANGES =>
                {
                    for (change, _) in &changes {
                        state.facts.invalidate(change);
                    }
                    head.revision
                }
                known => {
                    state.facts = H::default();
                    known.map_or_else(|| self.wanted(), |read| read.head.revision)
                }
            };
            state.applied = Some(revision.max(applied));
            // A head below what is applied shows that the database was set back: the cell stays behind until a sweep finds
            // that, so that nothing is answered from it.
            if revision >= applied {
                self.wanted.lower(announced, revision);
            }
        });
        Ok(())
    }
}

impl<H: Invalidate> ScopeCell for Cell<H> {
    fn raise(&self, revision: Revision) -> bool {
        self.wanted.raise(revision);
        self.behind().is_some()
    }

    fn applied(&self) -> Option<Revision> {
        self.state.read().applied
    }

    fn forget(&self, changes: &[Change]) {
        self.change(|state| changes.iter().for_each(|change| state.facts.invalidate(change)));
    }

    fn doubt(&self, changes: Vec<Change>) {
        let until = Instant::now() + DOUBT;
        self.change(|state| {
            state.doubts.extend(changes.into_iter().map(|change| (until, change)));
            if state.doubts.len() > MAX_DOUBTS {
                let change =
                    Change { revision: Revision(0), kind: ChangeKind::Unknown, subject: String::new() };
                state.doubts = vec![(until, change)];
            }
            state.drop_doubtful();
        });
    }

    fn is_in_doubt(&self) -> bool {
        self.state.read().doubts.iter().any(|(until, _)| *until > Instant::now())
    }

    fn catch_up<'a>(&'a self, store: &'a Store, _: &'a System) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.apply_changes(store))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::{Cell, Charge, Invalidate, ScopeCell};
    use crate::cache::MemoryBudget;
    use crate::model::scope::{Change, ChangeKind, Revision, Scope};
    use crate::store::{Store, StoreOptions, parse_url};

    #[derive(Debug, Default)]
    struct Nothing;

    impl Invalidate for Nothing {
        fn invalidate(&mut self, _: &Change) {}

        fn heap(&self) -> usize {
            0
        }
    }

    fn charge() -> Charge {
        MemoryBudget::new(1 << 20).pin("test")
    }

    /// A store that is never queried.
    fn no_store() -> Store {
        let nowhere = parse_url("postgres://none@127.0.0.1:1/none").unwrap();
        Store::new(StoreOptions {
            connect: nowhere.clone(),
            listen: nowhere,
            owner: None,
            max_connections: 1,
            acquire: Duration::from_secs(1),
            statement: Duration::from_secs(1),
            lock: Duration::from_secs(1),
        })
    }

    #[derive(Debug, Default)]
    struct Subjects(Vec<String>);

    impl Invalidate for Subjects {
        fn invalidate(&mut self, change: &Change) {
            self.0.retain(|subject| *subject != change.subject);
        }

        fn heap(&self) -> usize {
            self.0.iter().map(String::len).sum()
        }
    }

    fn change(subject: &str) -> Change {
        Change { revision: Revision(2), kind: ChangeKind::Key, subject: subject.to_owned() }
    }

    #[test]
    fn unconfirmed_commit_invalidates_and_is_not_cached_again() {
        let cell = Cell::<Subjects>::new(Scope::GATEWAY, charge());
        let keep = |subject: &str| cell.keep(Revision(1), 0, |facts| facts.0.push(subject.to_owned()));
        let cached = || cell.get_stale(|facts| Some(facts.0.clone())).unwrap();
        ["a", "b", "c"].into_iter().for_each(keep);
        cell.forget(&[change("a")]);
        assert_eq!(cached(), ["b", "c"]);
        keep("a");
        assert_eq!(cached(), ["b", "c", "a"], "a commit that took place is kept by its revision alone");
        cell.doubt(vec![change("b")]);
        keep("b");
        assert_eq!(cached(), ["c", "a"]);
    }

    #[test]
    fn applying_changes_and_keeping_do_not_deadlock() {
        const TIMES: usize = 200_000;
        let cell = Arc::new(Cell::<Nothing>::new(Scope::GATEWAY, charge()));
        cell.keep(Revision(1), 0, |_| {});
        let (done, both) = channel();
        let keeping = (Arc::clone(&cell), done.clone());
        std::thread::spawn(move || {
            let (cell, done) = keeping;
            (0..TIMES).for_each(|_| cell.keep(Revision(1), 0, |_| {}));
            done.send(()).unwrap();
        });
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let store = no_store();
                for _ in 0..TIMES {
                    cell.apply_changes(&store).await.unwrap();
                }
            });
            done.send(()).unwrap();
        });
        for _ in 0..2 {
            both.recv_timeout(Duration::from_mins(1)).expect("deadlock");
        }
    }
}
