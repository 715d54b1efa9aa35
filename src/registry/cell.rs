//! What is held of one scope, filled by one rule, so that nothing older than a known revision is ever answered.
//!
//! The cell is there before anything is read into it. The feed raises `wanted`; a load reads head and rows in one
//! snapshot; what it read is kept only if its revision is not below `wanted`. A reader that finds the cell behind
//! catches up first: reads the changes it has missed and forgets their subjects.

use std::convert::Infallible;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use quick_cache::sync::Cache;
use tokio::sync::Mutex;

use crate::model::scope::{Change, ChangeKind, Revision, Scope};
use crate::model::sources::{FailPoint, Sources};
use crate::store::snapshot::Snapshot;
use crate::store::{Store, StoreError};

/// Changes read at once; a cell further behind forgets everything instead.
const MOST_CHANGES: usize = 1_000;

/// How long a commit that got no answer may still take place: longer than the database leaves a transaction idle.
const DOUBT: Duration = Duration::from_mins(1);
/// Changes in doubt; past it everything of the scope is.
const MOST_DOUBTS: usize = 1_000;

/// What is held of a scope, by its uid: there before anything is read into it.
pub(super) fn cell_of<K, C>(cells: &Cache<K, Arc<C>>, uid: K, new: impl FnOnce() -> C) -> Arc<C>
where
    K: Copy + Eq + Hash,
{
    let Ok(cell) = cells.get_or_insert_with(&uid, || Ok::<_, Infallible>(Arc::new(new())));
    cell
}

/// Facts about a scope, each of which can be forgotten.
pub(super) trait Held: Default + Send + Sync + 'static {
    /// Forgets what a change touched.
    fn forget(&mut self, change: &Change);
}

/// What is held of one scope.
#[derive(Debug)]
pub(super) struct Cell<H> {
    scope: Scope,
    wanted: AtomicI64,
    state: RwLock<State<H>>,
    catching_up: Mutex<()>,
}

#[derive(Debug)]
struct State<H> {
    /// How often the cell was emptied: what was read before then is not kept.
    timeline: u64,
    /// Every held fact is as of this revision or a newer one; `None` while nothing was ever kept.
    applied: Option<Revision>,
    held: H,
    /// Changes of which it is not known whether they were committed, and until when that may still happen.
    doubts: Vec<(Instant, Change)>,
}

impl<H: Held> State<H> {
    /// Forgets what changes in doubt touch.
    fn forget_doubtful(&mut self) {
        if self.doubts.is_empty() {
            return;
        }
        let now = Instant::now();
        self.doubts.retain(|(until, _)| *until > now);
        self.doubts.iter().for_each(|(_, change)| self.held.forget(change));
    }
}

impl<H: Held> Cell<H> {
    pub(super) fn new(scope: Scope) -> Self {
        let state = RwLock::new(State { timeline: 0, applied: None, held: H::default(), doubts: Vec::new() });
        Self { scope, wanted: AtomicI64::new(0), state, catching_up: Mutex::new(()) }
    }

    /// Learns that the scope is at `revision` or newer; true where the cell is now behind.
    pub(super) fn raise(&self, revision: Revision) -> bool {
        self.wanted.fetch_max(revision.0, Ordering::AcqRel);
        self.is_behind()
    }

    fn wanted(&self) -> Revision {
        Revision(self.wanted.load(Ordering::Acquire))
    }

    fn is_behind(&self) -> bool {
        self.behind().is_some()
    }

    /// What is applied, where that is older than what is wanted. Asked for under one lock: whoever takes it for reading
    /// a second time waits for a writer, who waits for the first.
    fn behind(&self) -> Option<Revision> {
        let wanted = self.wanted();
        self.state.read().applied.filter(|applied| *applied < wanted)
    }

    /// The revision that it is at.
    pub(super) fn applied(&self) -> Option<Revision> {
        self.state.read().applied
    }

    /// Empties the cell: the database is in another timeline, whose revisions mean something else.
    pub(super) fn restart(&self) {
        let mut state = self.state.write();
        self.wanted.store(0, Ordering::Release);
        let (timeline, doubts) = (state.timeline + 1, std::mem::take(&mut state.doubts));
        *state = State { timeline, applied: None, held: H::default(), doubts };
    }

    pub(super) fn timeline(&self) -> u64 {
        self.state.read().timeline
    }

    /// A held fact, unless the cell is behind.
    pub(super) fn get<T>(&self, find: impl FnOnce(&H) -> Option<T>) -> Option<T> {
        let state = self.state.read();
        if state.applied? < self.wanted() { None } else { find(&state.held) }
    }

    /// A held fact, however old: for when the database is away and memory is still trusted.
    pub(super) fn get_stale<T>(&self, find: impl FnOnce(&H) -> Option<T>) -> Option<T> {
        find(&self.state.read().held)
    }

    /// Loads a fact, and keeps it unless the scope has moved on meanwhile.
    ///
    /// The answer is as new as anything known when the call began, kept or not.
    pub(super) async fn load<T>(
        &self,
        store: &Store,
        sources: &Sources,
        point: FailPoint,
        read: impl AsyncFnOnce(&mut Snapshot) -> Result<T, StoreError>,
        keep: impl FnOnce(&mut H, &T),
    ) -> Result<T, StoreError> {
        let timeline = self.timeline();
        let mut snapshot = store.snapshot().await?;
        let head = snapshot.head(self.scope).await?;
        let fact = read(&mut snapshot).await?;
        snapshot.end().await?;
        sources.pause(point).await;
        if let Some(head) = head {
            self.keep(head.revision, timeline, |held| keep(held, &fact));
        }
        Ok(fact)
    }

    /// Keeps what was read at `loaded`, unless a newer change is known, or was known and is applied: nobody would have
    /// it forgotten again.
    pub(super) fn keep(&self, loaded: Revision, timeline: u64, keep: impl FnOnce(&mut H)) {
        let mut state = self.state.write();
        if state.timeline != timeline {
            return;
        }
        let applied = *state.applied.get_or_insert(loaded);
        if loaded >= self.wanted() && loaded >= applied {
            keep(&mut state.held);
            state.forget_doubtful();
        }
    }

    /// Forgets at once what this replica's own commit touched, without waiting to read it: if the database goes away now,
    /// what was held before must not be answered.
    pub(super) fn forget(&self, changes: &[Change]) {
        let mut state = self.state.write();
        for change in changes {
            state.held.forget(change);
        }
    }

    /// Forgets what a commit touches of which it is not known whether it took place, and keeps nothing of it while it
    /// still may.
    pub(super) fn doubt(&self, changes: Vec<Change>) {
        let until = Instant::now() + DOUBT;
        let mut state = self.state.write();
        state.doubts.extend(changes.into_iter().map(|change| (until, change)));
        if state.doubts.len() > MOST_DOUBTS {
            let change = Change { revision: Revision(0), kind: ChangeKind::Unknown, subject: String::new() };
            state.doubts = vec![(until, change)];
        }
        state.forget_doubtful();
    }

    /// Reads the changes that were missed and forgets what they touched.
    pub(super) async fn catch_up(&self, store: &Store) -> Result<(), StoreError> {
        let _one_at_a_time = self.catching_up.lock().await;
        let timeline = self.timeline();
        let Some(applied) = self.behind() else { return Ok(()) };
        let mut snapshot = store.snapshot().await?;
        let head = snapshot.head(self.scope).await?;
        let changes = snapshot.changes_after(self.scope, applied, MOST_CHANGES + 1).await?;
        snapshot.end().await?;
        let known = head.filter(|head| head.floor <= applied && changes.len() <= MOST_CHANGES);
        let mut state = self.state.write();
        if state.timeline != timeline {
            return Ok(());
        }
        match known {
            Some(_) => changes.iter().for_each(|change| state.held.forget(change)),
            None => state.held = H::default(),
        }
        state.applied = Some(head.map_or_else(|| self.wanted(), |head| head.revision).max(applied));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::{Cell, Held};
    use crate::model::scope::{Change, ChangeKind, Revision, Scope};
    use crate::store::{Store, StoreOptions, parse_url};

    #[derive(Debug, Default)]
    struct Nothing;

    impl Held for Nothing {
        fn forget(&mut self, _: &Change) {}
    }

    /// One that nobody asks anything.
    fn no_store() -> Store {
        let nowhere = parse_url("postgres://nobody@127.0.0.1:1/none").unwrap();
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

    impl Held for Subjects {
        fn forget(&mut self, change: &Change) {
            self.0.retain(|subject| *subject != change.subject);
        }
    }

    fn change(subject: &str) -> Change {
        Change { revision: Revision(2), kind: ChangeKind::Key, subject: subject.to_owned() }
    }

    #[test]
    fn what_a_commit_in_doubt_touches_is_forgotten_and_not_kept_again() {
        let cell = Cell::<Subjects>::new(Scope::GATEWAY);
        let keep = |subject: &str| cell.keep(Revision(1), 0, |held| held.0.push(subject.to_owned()));
        let held = || cell.get_stale(|held| Some(held.0.clone())).unwrap();
        ["a", "b", "c"].into_iter().for_each(keep);
        cell.forget(&[change("a")]);
        assert_eq!(held(), ["b", "c"]);
        keep("a");
        assert_eq!(held(), ["b", "c", "a"], "a commit that took place is kept by its revision alone");
        cell.doubt(vec![change("b")]);
        keep("b");
        assert_eq!(held(), ["c", "a"]);
    }

    #[test]
    fn catching_up_and_keeping_do_not_wait_for_each_other() {
        const TIMES: usize = 200_000;
        let cell = Arc::new(Cell::<Nothing>::new(Scope::GATEWAY));
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
                    cell.catch_up(&store).await.unwrap();
                }
            });
            done.send(()).unwrap();
        });
        for _ in 0..2 {
            both.recv_timeout(Duration::from_mins(1)).expect("they wait for each other");
        }
    }
}
