//! Resources, as their owner writes and reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::Catalog;
use super::difference::{removal, step};
use super::target::{NO_AGENT, Target};
use crate::model::agent::Agent;
use crate::model::audit::write::AuditedWrite;
use crate::model::fault::Fault;
use crate::model::precondition::{Precondition, Written};
use crate::model::resource::{ContentHash, Definition, NewPart, NewResource, PartKind, Resource};
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::model::uri::ResourceUri;
use crate::store::StoreError;
use crate::store::write::Write;

const NO_RESOURCE: Fault = Fault::NotFound("resource");

/// New raw content of a resource that may or may not be there.
#[derive(Debug, Clone)]
pub struct RawContent {
    /// Its MIME type; `None` keeps that of the present content.
    pub mime_type: Option<String>,
    /// The bytes.
    pub bytes: Bytes,
}

impl RawContent {
    /// The resource with this as its only content, which keeps the URI and the type of the one that it replaces.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] where there are several contents.
    fn of(self, uri: ResourceUri, old: Option<&Resource>) -> Result<NewResource, Fault> {
        let Self { mime_type, bytes } = self;
        let mut definition = old.map_or_else(|| named_after(&uri), |old| old.definition.clone());
        let (mut part_uri, mut part_type, mut kind) = (None, None, None);
        match old.map_or(&[][..], |old| &old.parts) {
            [] => {}
            [part] => {
                (part_uri, part_type, kind) = (part.uri.clone(), part.mime_type.clone(), Some(part.kind));
            }
            parts => {
                let wrong = format!(
                    "the resource has {} contents, expected at most one; replace all of them as JSON",
                    parts.len()
                );
                return Err(Fault::invalid_params(wrong));
            }
        }
        if mime_type.is_some() {
            kind = None;
            // Where the type stood before, so that the content is answered with the new one.
            let declared = if part_type.is_some() { &mut part_type } else { &mut definition.mime_type };
            *declared = mime_type;
        }
        let named = part_type.as_deref().or(definition.mime_type.as_deref());
        let kind = match kind {
            Some(kind) => kind.replacing(named, &bytes),
            None => PartKind::of(named, &bytes),
        };
        let parts = vec![NewPart::new(part_uri, part_type, kind, bytes)];
        Ok(NewResource { uri, definition, parts })
    }
}

/// A resource with the bytes of its contents.
#[derive(Debug, Clone)]
pub struct FullResource {
    /// The resource.
    pub resource: Resource,
    /// What its parts name.
    pub bytes: BTreeMap<ContentHash, Bytes>,
}

impl Catalog {
    /// Resources after a URI, in byte order.
    pub async fn resources(&self, agent: &Agent, after: &str, limit: i64) -> Result<Vec<Resource>, Fault> {
        let mut view = self.store.snapshot().await?;
        let uris = view.resource_uris(agent.tenant, agent.uid, after, limit).await?;
        let resources = view.resources(agent.tenant, agent.uid, Some(&uris), &self.sources).await?;
        view.end().await?;
        Ok(resources)
    }

    /// A resource with its contents.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn resource(&self, agent: &Agent, uri: &ResourceUri) -> Result<FullResource, Fault> {
        let mut view = self.store.snapshot().await?;
        let only = [uri.as_str().to_owned()];
        let found = view.resources(agent.tenant, agent.uid, Some(&only), &self.sources).await?.pop();
        view.end().await?;
        let resource = found.ok_or(NO_RESOURCE)?;
        let hashes: Vec<_> = resource.parts.iter().map(|part| part.hash).collect();
        let bytes = self.store.contents(agent.tenant, agent.uid, &hashes).await?;
        if hashes.iter().all(|hash| bytes.contains_key(hash)) {
            Ok(FullResource { resource, bytes })
        } else {
            Err(StoreError::Unreadable("content").into())
        }
    }

    /// Adds or replaces a resource. One that is the same already is left as it is, its revision too.
    ///
    /// # Errors
    /// [`Fault::NotFound`] where the agent is gone, [`Fault::RevisionMismatch`], [`Fault::InvalidParams`] past the
    /// most resources of an agent.
    pub async fn put_resource(
        self: &Arc<Self>,
        agent: &Agent,
        new: NewResource,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        let (catalog, tenant, agent) = (Arc::clone(self), agent.tenant, agent.uid);
        self.writer
            .detached(async move {
                catalog
                    .writer
                    .transact(Scope::from(agent), &audited, async |write| {
                        let target = Target::lock(write, tenant, agent).await?;
                        let old = write.resource(tenant, agent, &new.uri).await?;
                        condition.check(old.as_ref().map(|old| old.revision))?;
                        catalog.put(write, &target, old, &new).await
                    })
                    .await
            })
            .await
    }

    /// Replaces the contents of a resource by raw bytes; makes one, named after its URI, where there is none.
    ///
    /// # Errors
    /// As [`put_resource`](Self::put_resource), and [`Fault::InvalidParams`] where there are several contents.
    pub async fn put_content(
        self: &Arc<Self>,
        agent: &Agent,
        uri: ResourceUri,
        content: RawContent,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        let (catalog, tenant, agent) = (Arc::clone(self), agent.tenant, agent.uid);
        self.writer
            .detached(async move {
                catalog
                    .writer
                    .transact(Scope::from(agent), &audited, async |write| {
                        let target = Target::lock(write, tenant, agent).await?;
                        let old = write.resource(tenant, agent, &uri).await?;
                        condition.check(old.as_ref().map(|old| old.revision))?;
                        let new = content.of(uri, old.as_ref())?;
                        catalog.put(write, &target, old, &new).await
                    })
                    .await
            })
            .await
    }

    async fn put(
        &self,
        write: &mut Write,
        target: &Target,
        old: Option<Resource>,
        new: &NewResource,
    ) -> Result<Written, Fault> {
        let &Target { tenant, agent, scope, revision } = target;
        let Some((kind, put)) = step(old.as_ref(), new) else {
            return Ok(Written { revision: old.map_or(revision, |old| old.revision), created: false });
        };
        if old.is_none() {
            self.count_in(write, target).await?;
        }
        write.put_resources(tenant, agent, &[put], revision, self.sources.clock.now()).await?;
        write.change(scope, kind, new.uri.as_str());
        write.set_summary(target.summary(new.uri.as_str(), old.as_ref(), Some(new)));
        Ok(Written { revision, created: old.is_none() })
    }

    async fn count_in(&self, write: &mut Write, target: &Target) -> Result<(), Fault> {
        let count = write.count_resources(target.tenant, target.agent, 1).await?.ok_or(NO_AGENT)?;
        if usize::try_from(count).is_ok_and(|count| count > self.limits.resources_per_agent) {
            return Err(Fault::invalid_params("the agent's limit of resources is reached; delete one first"));
        }
        Ok(())
    }

    /// Says that a resource changed, without new content.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn touch_resource(
        self: &Arc<Self>,
        agent: &Agent,
        uri: ResourceUri,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        let (catalog, tenant, agent) = (Arc::clone(self), agent.tenant, agent.uid);
        self.writer
            .detached(async move {
                catalog
                    .writer
                    .transact(Scope::from(agent), &audited, async |write| {
                        let target = Target::lock(write, tenant, agent).await?;
                        let Target { scope, revision, .. } = target;
                        let old = write.resource(tenant, agent, &uri).await?.ok_or(NO_RESOURCE)?;
                        condition.check(Some(old.revision))?;
                        let now = catalog.sources.clock.now();
                        write.touch_resource(tenant, agent, &uri, revision, now).await?;
                        write.change(scope, ChangeKind::ResourceTouched, uri.as_str());
                        write.set_summary(target.summary(uri.as_str(), Some(&old), Some(&old)));
                        Ok(Written { revision, created: false })
                    })
                    .await
            })
            .await
    }

    /// Removes a resource; answers the revision without it.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn delete_resource(
        self: &Arc<Self>,
        agent: &Agent,
        uri: ResourceUri,
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
                        let old = write.resource(tenant, agent, &uri).await?.ok_or(NO_RESOURCE)?;
                        condition.check(Some(old.revision))?;
                        let now = catalog.sources.clock.now();
                        write.delete_resources(tenant, agent, &[removal(&old)], now).await?;
                        write.count_resources(tenant, agent, -1).await?;
                        write.change(scope, ChangeKind::ResourceRemoved, uri.as_str());
                        write.set_summary(target.summary(uri.as_str(), Some(&old), None::<&NewResource>));
                        Ok(revision)
                    })
                    .await
            })
            .await
    }
}

/// The definition of a resource of which only content is known.
fn named_after(uri: &ResourceUri) -> Definition {
    let last = uri.as_str().rsplit('/').find(|segment| !segment.is_empty()).unwrap_or(uri.as_str());
    let end = (0..=last.len().min(512)).rfind(|&end| last.is_char_boundary(end)).unwrap_or(0);
    Definition {
        name: last[..end].to_owned(),
        title: None,
        description: None,
        mime_type: None,
        annotations: None,
        icons: None,
        meta: None,
    }
}
