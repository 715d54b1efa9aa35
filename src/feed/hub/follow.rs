//! Follows the changes of an agent with open streams, and marks the subjects they affect.

use std::sync::Arc;
use std::time::Duration;

use super::effects::{
    Affected, Effects, SubscribedUris, TemplateEffects, affects_templated_uris, directly_affected,
};
use super::streams::MAX_CHANGES;
use super::topic::Topic;
use crate::feed::service::Feed;
use crate::model::audience::Audience;
use crate::model::backoff::Backoff;
use crate::model::feed::ServedAnew;
use crate::model::scope::{Change, Revision, Scope};
use crate::model::scope_changes::ScopeChanges;
use crate::model::system::FailPoint;
use crate::model::tool::can_be_tool;
use crate::store::StoreError;

/// The delay after a failed read.
const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

impl Feed {
    /// Reads an agent's changes for its streams until the topic ends.
    pub(super) async fn follow_changes(self: Arc<Self>, topic: Arc<Topic>) {
        let stop = topic.stop.clone();
        let following = async {
            let mut failures = 0_u32;
            loop {
                match Box::pin(self.advance(&topic)).await {
                    Ok(()) => failures = 0,
                    Err(error) => {
                        tracing::debug!(%error, agent = %topic.agent, "reading changes for streams failed");
                        tokio::time::sleep(RETRY.jittered(failures, self.system.random.as_ref())).await;
                        failures = failures.saturating_add(1);
                        continue;
                    }
                }
                if !topic.is_behind() {
                    topic.changed.notified().await;
                }
            }
        };
        let _ = stop.run_until_cancelled(following).await;
    }

    /// Reads the changes since the last call, waits for the replicas to acknowledge them, and marks what they
    /// affect.
    async fn advance(&self, topic: &Topic) -> Result<(), StoreError> {
        let timeline = topic.timeline();
        let seen = topic.seen();
        if seen.0 < 0 {
            return self.start_topic(topic).await;
        }
        if !topic.is_behind() {
            return Ok(());
        }
        let scope = Scope::from(topic.agent);
        let announced = topic.wanted.announced();
        self.system.pause(FailPoint::BeforeStreamsRead).await;
        let read = match self.apply_to_memory(topic, seen).await {
            Some(applied) => Some(applied),
            None => self.hub.limit(self.store.changes_after(scope, seen, MAX_CHANGES + 1)).await?,
        };
        // The agent was deleted: its streams end by their own recheck.
        let Some(ScopeChanges { head, changes, oldest }) = read else {
            topic.mark(&Effects::default(), topic.wanted.get(), timeline);
            return Ok(());
        };
        if head.revision < seen {
            // The database was set back. What streams have seen stays, so that a sweep finds that by it.
            return Err(StoreError::Unreadable("agent revision, which is lower than before"));
        }
        self.catch_up_to(scope, head.revision);
        self.wait_for_acks_of_streamed_scope(scope, head.revision).await;
        if head.floor > seen {
            // The changes are not all retained, so they may concern everybody.
            topic.mark_all(&Audience::Everybody, head.revision, timeline);
        } else if changes.len() > MAX_CHANGES {
            let range = (seen, head.revision);
            let audience = self.hub.limit(self.store.audience_of_changes(scope, range)).await?;
            topic.mark_all(&audience, head.revision, timeline);
        } else {
            self.system.pause(FailPoint::BeforeDelivery).await;
            let effects = self.effects_of(topic, (seen, &changes), || topic.subscribed_uris()).await;
            topic.mark(&effects, head.revision, timeline);
        }
        // Memory is raised before streams are, and what it read without a statement of its own is what it wants or newer.
        topic.wanted.lower(announced, head.revision);
        if let Some(oldest) = oldest {
            let lag = Duration::try_from(self.system.clock.now() - oldest).unwrap_or_default();
            self.hub.lag.count(lag);
        }
        Ok(())
    }

    /// Reads the changes after a revision and patches memory with them, where it can be.
    async fn apply_to_memory(&self, topic: &Topic, seen: Revision) -> Option<ScopeChanges> {
        let follower = self.follower.get()?;
        let applying = async { Ok(follower.apply_changes(topic.agent, seen).await) };
        self.hub.limit(applying).await.ok().flatten()
    }

    /// Requests a catch-up in the background if memory is older than `head`, up to which streams have read.
    fn catch_up_to(&self, scope: Scope, head: Revision) {
        let applied = self.follower.get().and_then(|follower| follower.applied(scope));
        if applied.is_some_and(|applied| applied < head) {
            self.follower.add_behind(scope);
        }
    }

    async fn start_topic(&self, topic: &Topic) -> Result<(), StoreError> {
        let (scope, timeline) = (Scope::from(topic.agent), topic.timeline());
        let head = self.hub.read(&self.store, scope, async |_, head| Ok(head.revision));
        let head = head.await?.unwrap_or_default();
        self.catch_up_to(scope, head);
        // A resumed stream sends changes up to this head at once, so the replicas must have acknowledged it.
        self.wait_for_acks_of_streamed_scope(scope, head).await;
        topic.start_at(head, timeline);
        Ok(())
    }
}

impl Feed {
    /// What the changes after a revision affect. `subscribed` is called if resource templates changed, to find out which URIs are served
    /// differently.
    pub(super) async fn effects_of(
        &self,
        topic: &Topic,
        (after, changes): (Revision, &[(Change, Audience)]),
        subscribed: impl FnOnce() -> SubscribedUris,
    ) -> Effects {
        let direct = changes.iter().flat_map(|(change, audience)| {
            directly_affected(change).map(|(revision, affected)| (revision, affected, audience.clone()))
        });
        let direct = direct.chain(self.relisted_tools(topic, (after, changes)).await).collect();
        Effects { direct, templates: self.template_effects(topic, changes, subscribed).await }
    }

    /// The effects on the list of tools of changes to prompts that are tools.
    async fn relisted_tools(
        &self,
        topic: &Topic,
        (after, changes): (Revision, &[(Change, Audience)]),
    ) -> Vec<(Revision, Affected, Audience)> {
        let is_tool =
            |(change, _): &&(Change, Audience)| change.kind.relists_prompts() && can_be_tool(&change.subject);
        let mut changes = changes.iter().filter(is_tool).peekable();
        // If it is off by now, the change that turned it off is notified too.
        if changes.peek().is_none() || !self.offers_prompt_tools(topic, after).await {
            return Vec::new();
        }
        changes.map(|(change, audience)| (change.revision, Affected::ToolList, audience.clone())).collect()
    }

    async fn offers_prompt_tools(&self, topic: &Topic, after: Revision) -> bool {
        match self.follower.get() {
            Some(follower) => follower.offers_prompt_tools(topic.tenant, topic.agent, after).await,
            None => true,
        }
    }

    async fn template_effects(
        &self,
        topic: &Topic,
        changes: &[(Change, Audience)],
        subscribed: impl FnOnce() -> SubscribedUris,
    ) -> Option<TemplateEffects> {
        let changes: Vec<_> =
            changes.iter().filter(|(change, _)| affects_templated_uris(change)).cloned().collect();
        let last = changes.last()?.0.revision;
        let audience = changes.iter().map(|(_, audience)| audience.clone()).reduce(Audience::or)?;
        let subscribed = subscribed();
        let SubscribedUris { uris, callers, .. } = &subscribed;
        let served = match self.follower.get() {
            _ if uris.is_empty() => Vec::new(),
            Some(follower) => follower.served(topic.tenant, topic.agent, &changes, uris, callers).await,
            None => vec![ServedAnew::unknown(&changes, callers)],
        };
        Some(TemplateEffects { last, audience, subscribed, served })
    }
}
