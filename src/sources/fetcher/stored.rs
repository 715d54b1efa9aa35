//! Content that the replica which watches a connection has fetched, and stored in the database for all replicas.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{Inner, Kept, Key};
use crate::model::ids::AgentRef;
use crate::model::variant::Variant;
use crate::sources::counters::WatchEvent;
use crate::store::found_contents::{FoundAt, FoundContents};

/// The timeout of the database's answer; after it the content is fetched.
const DATABASE_TIMEOUT: Duration = Duration::from_millis(500);

impl Inner {
    /// The stored content of a URI, unless it is too old; kept as if this replica had fetched it.
    pub(super) async fn stored(&self, key: &Key, variant: Variant) -> Option<Arc<Kept>> {
        let Key { connection, connection_revision, revision, .. } = *key;
        let subject = (AgentRef { tenant: key.tenant, uid: key.agent }, variant);
        let at = FoundAt { connection, connection_revision, revision };
        let found = timeout(DATABASE_TIMEOUT, self.connections.store.found_contents(&subject, at)).await;
        let FoundContents { contents, validator, age } = found.ok()?.ok()??;
        let checked = Instant::now().checked_sub(age)?;
        let contents = Some(contents.into());
        let kept = Arc::new(Kept { id: self.next_id(), contents, validator, checked, is_of_round: false });
        self.keep(key, &kept);
        self.counters.watched(WatchEvent::Answered);
        Some(kept)
    }
}
