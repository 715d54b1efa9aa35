//! Prompts, as their owner writes and reads them.

use std::sync::Arc;

use bytes::Bytes;

use super::Catalog;
use super::difference::{removal, step};
use super::target::Target;
use crate::model::agent::Agent;
use crate::model::audit::write::AuditedWrite;
use crate::model::fault::Fault;
use crate::model::precondition::{Precondition, Written};
use crate::model::prompt::{NewPrompt, Prompt, PromptName};
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::store::StoreError;
use crate::store::write::Write;

const NO_PROMPT: Fault = Fault::NotFound("prompt");

/// A prompt with its messages.
#[derive(Debug, Clone)]
pub struct FullPrompt {
    /// The prompt.
    pub prompt: Prompt,
    /// Its messages, a JSON list.
    pub messages: Bytes,
}

impl Catalog {
    /// Prompts after a name, in byte order.
    pub async fn prompts(&self, agent: &Agent, after: &str, limit: i64) -> Result<Vec<Prompt>, Fault> {
        let mut view = self.store.snapshot().await?;
        let names = view.prompt_names(agent.tenant, agent.uid, after, limit).await?;
        let prompts = view.prompts(agent.tenant, agent.uid, Some(&names)).await?;
        view.end().await?;
        Ok(prompts)
    }

    /// A prompt with its messages.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn prompt(&self, agent: &Agent, name: &PromptName) -> Result<FullPrompt, Fault> {
        let mut view = self.store.snapshot().await?;
        let only = [name.as_str().to_owned()];
        let found = view.prompts(agent.tenant, agent.uid, Some(&only)).await?.pop();
        view.end().await?;
        let prompt = found.ok_or(NO_PROMPT)?;
        let messages = self.store.contents(agent.tenant, agent.uid, &[prompt.messages]).await?;
        let messages =
            messages.get(&prompt.messages).cloned().ok_or(StoreError::Unreadable("prompt message"))?;
        Ok(FullPrompt { prompt, messages })
    }

    /// Adds or replaces a prompt. One that is the same already is left as it is, its revision too.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] where the messages do not compile or render, and past the most prompts of an agent;
    /// [`Fault::Unavailable`] where too much is being rendered; [`Fault::NotFound`] where the agent is gone;
    /// [`Fault::RevisionMismatch`].
    pub async fn put_prompt(
        self: &Arc<Self>,
        agent: &Agent,
        new: NewPrompt,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        self.check_messages(agent.tenant, &new).await?;
        let (catalog, tenant, agent) = (Arc::clone(self), agent.tenant, agent.uid);
        self.writer
            .detached(async move {
                catalog
                    .writer
                    .transact(Scope::from(agent), &audited, async |write| {
                        let target = Target::lock(write, tenant, agent).await?;
                        let only = [new.name.as_str().to_owned()];
                        let old = write.prompts(tenant, agent, Some(&only)).await?.pop();
                        condition.check(old.as_ref().map(|old| old.revision))?;
                        catalog.put_checked_prompt(write, &target, old, &new).await
                    })
                    .await
            })
            .await
    }

    async fn put_checked_prompt(
        &self,
        write: &mut Write,
        target: &Target,
        old: Option<Prompt>,
        new: &NewPrompt,
    ) -> Result<Written, Fault> {
        let &Target { tenant, agent, scope, revision } = target;
        let Some((kind, put)) = step(old.as_ref(), new) else {
            return Ok(Written { revision: old.map_or(revision, |old| old.revision), created: false });
        };
        if old.is_none() {
            let count = write.count_prompts(tenant, agent).await?;
            if usize::try_from(count).is_ok_and(|count| count >= self.limits.prompts_per_agent) {
                return Err(Fault::invalid_params(
                    "the agent's limit of prompts is reached; delete one first",
                ));
            }
        }
        write.put_prompts(tenant, agent, &[put], revision, self.sources.clock.now()).await?;
        write.change(scope, kind, new.name.as_str());
        write.set_summary(target.summary(new.name.as_str(), old.as_ref(), Some(new)));
        Ok(Written { revision, created: old.is_none() })
    }

    /// Removes a prompt; answers the revision without it.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn delete_prompt(
        self: &Arc<Self>,
        agent: &Agent,
        name: PromptName,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Revision, Fault> {
        let (catalog, tenant, agent) = (Arc::clone(self), agent.tenant, agent.uid);
        self.writer
            .detached(async move {
                catalog
                    .writer
                    .transact(Scope::from(agent), &audited, async |write| {
                        let target = Target::lock(write, tenant, agent).await?;
                        let Target { scope, revision, .. } = target;
                        let only = [name.as_str().to_owned()];
                        let old = write.prompts(tenant, agent, Some(&only)).await?.pop().ok_or(NO_PROMPT)?;
                        condition.check(Some(old.revision))?;
                        let now = catalog.sources.clock.now();
                        write.delete_prompts(tenant, agent, &[removal(&old)], now).await?;
                        write.change(scope, ChangeKind::PromptRemoved, name.as_str());
                        write.set_summary(target.summary(name.as_str(), Some(&old), None::<&NewPrompt>));
                        Ok(revision)
                    })
                    .await
            })
            .await
    }
}
