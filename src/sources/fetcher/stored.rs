//! Content that the watching replica has found, and stored for all.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{Inner, Kept, Key};
use crate::model::ids::AgentRef;
use crate::model::variant::Variant;
use crate::sources::counters::WatchEvent;
use crate::store::found_contents::{FoundAt, FoundContents};

/// How long the database has to answer; then the source is asked.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

impl Inner {
    /// What was found of some content, unless it is too old; kept as if it had been fetched.
    pub(super) async fn stored(&self, key: &Key, variant: Variant) -> Option<Arc<Kept>> {
        let Key { connection, connected, revision, .. } = *key;
        let subject = (AgentRef { tenant: key.tenant, uid: key.agent }, variant);
        let at = FoundAt { connection, connected, revision };
        let found = timeout(ANSWERS_WITHIN, self.connections.store.found_contents(&subject, at)).await;
        let FoundContents { contents, validator, age } = found.ok()?.ok()??;
        let checked = Instant::now().checked_sub(age)?;
        let contents = Some(contents.into());
        let kept = Arc::new(Kept { id: self.next_id(), contents, validator, checked, is_of_round: false });
        self.keep(key, &kept);
        self.counters.watched(WatchEvent::Answered);
        Some(kept)
    }
}
