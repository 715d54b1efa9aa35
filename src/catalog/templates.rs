//! Resource templates, as their owner writes and reads them.

use std::sync::Arc;

use bytes::Bytes;
use uri_template::UriTemplate;

use super::Catalog;
use super::difference::{removal, step};
use super::target::Target;
use crate::model::agent::Agent;
use crate::model::audit::write::AuditedWrite;
use crate::model::fault::Fault;
use crate::model::precondition::{Precondition, Written};
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::model::template::{NewTemplate, ResourceTemplate};
use crate::store::StoreError;
use crate::store::write::Write;

const NO_TEMPLATE: Fault = Fault::NotFound("resource template");

/// A resource template with its body.
#[derive(Debug, Clone)]
pub struct FullTemplate {
    /// The template.
    pub template: ResourceTemplate,
    /// What is rendered.
    pub body: Bytes,
}

impl Catalog {
    /// Resource templates after one of them, in byte order.
    pub async fn templates(
        &self,
        agent: &Agent,
        after: &str,
        limit: i64,
    ) -> Result<Vec<ResourceTemplate>, Fault> {
        let mut view = self.store.snapshot().await?;
        let texts = view.uri_templates(agent.tenant, agent.uid, after, limit).await?;
        let templates = view.templates(agent.tenant, agent.uid, Some(&texts)).await?;
        view.end().await?;
        Ok(templates)
    }

    /// A resource template with its body.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn template(&self, agent: &Agent, uri_template: &UriTemplate) -> Result<FullTemplate, Fault> {
        let mut view = self.store.snapshot().await?;
        let only = [uri_template.as_str().to_owned()];
        let found = view.templates(agent.tenant, agent.uid, Some(&only)).await?.pop();
        view.end().await?;
        let template = found.ok_or(NO_TEMPLATE)?;
        let body = self.store.contents(agent.tenant, agent.uid, &[template.body]).await?;
        let body = body.get(&template.body).cloned().ok_or(StoreError::Unreadable("template body"))?;
        Ok(FullTemplate { template, body })
    }

    /// Adds or replaces a resource template. One that is the same already is left as it is, its revision too.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] where the body does not compile or render, where the template conflicts with another,
    /// and past the most templates of an agent; [`Fault::Unavailable`] where too much is being rendered;
    /// [`Fault::NotFound`] where the agent is gone; [`Fault::RevisionMismatch`].
    pub async fn put_template(
        self: &Arc<Self>,
        agent: &Agent,
        new: NewTemplate,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        self.check_body(agent.tenant, &new).await?;
        let (catalog, tenant, agent) = (Arc::clone(self), agent.tenant, agent.uid);
        self.writer
            .detached(async move {
                catalog
                    .writer
                    .transact(Scope::from(agent), &audited, async |write| {
                        let target = Target::lock(write, tenant, agent).await?;
                        let only = [new.uri_template.as_str().to_owned()];
                        let old = write.templates(tenant, agent, Some(&only)).await?.pop();
                        condition.check(old.as_ref().map(|old| old.revision))?;
                        catalog.put_checked_template(write, &target, old, &new).await
                    })
                    .await
            })
            .await
    }

    async fn put_checked_template(
        &self,
        write: &mut Write,
        target: &Target,
        old: Option<ResourceTemplate>,
        new: &NewTemplate,
    ) -> Result<Written, Fault> {
        let &Target { tenant, agent, scope, revision } = target;
        let Some((kind, put)) = step(old.as_ref(), new) else {
            return Ok(Written { revision: old.map_or(revision, |old| old.revision), created: false });
        };
        if old.is_none() {
            self.check_beside(write, target, &new.uri_template).await?;
        }
        write.put_templates(tenant, agent, &[put], revision, self.sources.clock.now()).await?;
        write.change(scope, kind, new.uri_template.as_str());
        write.set_summary(target.summary(new.uri_template.as_str(), old.as_ref(), Some(new)));
        Ok(Written { revision, created: old.is_none() })
    }

    /// Checks that there is room for a template beside the others, and that it conflicts with none.
    async fn check_beside(&self, write: &mut Write, target: &Target, new: &UriTemplate) -> Result<(), Fault> {
        let others = write.uri_templates(target.tenant, target.agent).await?;
        if others.len() >= self.limits.templates_per_agent {
            return Err(Fault::invalid_params(
                "the agent's limit of resource templates is reached; delete one first",
            ));
        }
        match self.find_conflict(target.tenant, others, [new.clone()].into()).await? {
            Some((_, conflict)) => Err(Fault::invalid_params(format!("uriTemplate {conflict}"))),
            None => Ok(()),
        }
    }

    /// Removes a resource template; answers the revision without it.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn delete_template(
        self: &Arc<Self>,
        agent: &Agent,
        uri_template: UriTemplate,
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
                        let only = [uri_template.as_str().to_owned()];
                        let old =
                            write.templates(tenant, agent, Some(&only)).await?.pop().ok_or(NO_TEMPLATE)?;
                        condition.check(Some(old.revision))?;
                        let now = catalog.sources.clock.now();
                        write.delete_templates(tenant, agent, &[removal(&old)], now).await?;
                        write.change(scope, ChangeKind::TemplateRemoved, uri_template.as_str());
                        write.set_summary(target.summary(
                            uri_template.as_str(),
                            Some(&old),
                            None::<&NewTemplate>,
                        ));
                        Ok(revision)
                    })
                    .await
            })
            .await
    }
}
