//! Subscribing to an agent, and waiting until the replicas have acknowledged a revision.

use std::sync::Arc;

use tokio::time::Instant;

use super::dirty_set::DirtySet;
use super::streams::TopicEntry;
use super::subscription::Subscription;
use super::topic::Topic;
use crate::feed::service::Feed;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, TenantId};
use crate::model::label::CallerLabels;
use crate::model::scope::{Revision, Scope};
use crate::telemetry::span;

impl Feed {
    /// Subscribes to an agent, without any interests yet, for a caller with these labels. The subscription is asked to
    /// recheck whether it may continue when one of the scopes `recheck_on` changes.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] if the agent's head could not be read in time.
    pub async fn subscribe(
        self: &Arc<Self>,
        tenant: TenantId,
        agent: AgentId,
        labels: CallerLabels,
        recheck_on: &[Scope],
    ) -> Result<Subscription, Fault> {
        let topic = self.topic(tenant, agent);
        let subscriber = Arc::new(DirtySet::new(labels));
        self.hub.recheck_on(recheck_on, &subscriber);
        // From here on, dropping the subscription undoes the registration.
        let subscription = Subscription::new(Arc::clone(self), topic, subscriber, recheck_on.to_vec());
        subscription.wait_until_ready().await?;
        Ok(subscription)
    }

    /// Reads the current revision of an agent.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] if the database does not answer; [`Fault::Forbidden`] if the agent does
    /// not exist any more.
    pub async fn head(&self, agent: AgentId) -> Result<Revision, Fault> {
        self.head_of(Scope::from(agent)).await
    }

    /// Waits until every replica has acknowledged the current revision of a scope.
    pub(super) async fn acknowledge(&self, scope: Scope) -> Result<(), Fault> {
        let head = self.head_of(scope).await?;
        self.wait_for_replicas(scope, head).await;
        Ok(())
    }

    async fn head_of(&self, scope: Scope) -> Result<Revision, Fault> {
        let (hub, store) = (Arc::clone(&self.hub), self.store.clone());
        // In a task: if a caller that reads for others is cancelled, they are answered all the same. As many tasks wait as
        // rows may, each for as long as a row may.
        let reading = self.hub.tasks.spawn(span::inherit(async move { hub.read_head(&store, scope).await }));
        let read = reading.await.unwrap_or_else(|error| Err(Fault::Internal(error.to_string())));
        read?.ok_or(Fault::Forbidden)
    }

    /// Reads the current revision of an agent and waits until every replica has acknowledged it. A client that
    /// subscribes from this revision on can read earlier changes from any replica.
    ///
    /// # Errors
    /// Those of [`head`](Self::head).
    pub async fn acknowledged_head(&self, agent: AgentId) -> Result<Revision, Fault> {
        let head = self.head(agent).await?;
        self.wait_for_acks_of_streamed_scope(Scope::from(agent), head).await;
        Ok(head)
    }

    /// As [`wait_for_replicas`](Self::wait_for_replicas), for a scope with streams on this replica: other replicas then
    /// request acknowledgements with their writes.
    pub async fn wait_for_acks_of_streamed_scope(&self, scope: Scope, revision: Revision) {
        let waiting = async {
            if !self.replicas.wait_for_acks(scope, revision).await {
                self.replicas.record_followed(scope, Instant::now());
                self.pending.follow(scope);
                let request = self.request_ack(scope, revision);
                self.replicas.wait_for_request(request).await;
            }
        };
        let _ = tokio::time::timeout(self.longest_wait_for_acks(), waiting).await;
    }

    /// Waits until every replica that may answer from memory has acknowledged that a scope is at `revision`.
    /// The wait is bounded by the time after which a replica without notifications has swept, or stops
    /// answering from memory.
    pub async fn wait_for_replicas(&self, scope: Scope, revision: Revision) {
        let request = self.request_ack(scope, revision);
        let waiting = self.replicas.wait_for_request(request);
        let _ = tokio::time::timeout(self.longest_wait_for_acks(), waiting).await;
    }

    fn topic(self: &Arc<Self>, tenant: TenantId, agent: AgentId) -> Arc<Topic> {
        let mut topics = self.hub.topics.lock();
        let entry = topics.entry(agent).or_insert_with(|| {
            let topic = Arc::new(Topic::new(tenant, agent, self.hub.stop.child_token()));
            self.hub.tasks.spawn(Arc::clone(self).follow_changes(Arc::clone(&topic)));
            self.hub.opened.notify_one();
            TopicEntry { topic, streams: 0 }
        });
        entry.streams += 1;
        Arc::clone(&entry.topic)
    }
}
