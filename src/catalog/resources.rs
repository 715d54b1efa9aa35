//! Resources: their number is stored, and their contents can be written as raw bytes.

use std::sync::Arc;

use bytes::Bytes;

use super::Catalog;
use super::definitions::{Registered, check_count};
use super::limits::CatalogLimits;
use super::skill_placement::check_outside;
use super::target::Target;
use crate::model::agent::Agent;
use crate::model::audience::Audience;
use crate::model::audit::event::ChangeHashes;
use crate::model::audit::write::AuditedWrite;
use crate::model::definition::DefinitionKind;
use crate::model::fault::Fault;
use crate::model::ids::{AgentRef, ResourceUri, TenantId};
use crate::model::precondition::{Precondition, Written};
use crate::model::resource::{Definition, NewPart, NewResource, PartKind, Resource};
use crate::model::scope::{ChangeKind, Scope};
use crate::store::write::Write;

/// New raw content of a resource that may or may not be there.
#[derive(Debug, Clone)]
pub struct RawContent {
    /// Its MIME type; `None` keeps that of the present content.
    pub mime_type: Option<String>,
    /// The bytes.
    pub bytes: Bytes,
}

impl RawContent {
    /// The resource with this as its only content, which keeps the labels of the resource, and the URI,
    /// the type and `_meta` of the content that it replaces.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] if there are several contents.
    fn of(self, uri: ResourceUri, old: Option<&Resource>) -> Result<NewResource, Fault> {
        let Self { mime_type, bytes } = self;
        if old.is_some_and(|old| old.source.is_some()) {
            return Err(Fault::invalid_params(
                "the content of the resource comes from a connection; replace the resource as JSON",
            ));
        }
        let mut definition = old.map_or_else(|| named_after(&uri), |old| old.definition.clone());
        let (mut part_uri, mut part_type, mut kind, mut meta) = (None, None, None, None);
        match old.map_or(&[][..], |old| &old.parts) {
            [] => {}
            [part] => {
                (part_uri, part_type, kind) = (part.uri.clone(), part.mime_type.clone(), Some(part.kind));
                meta.clone_from(&part.meta);
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
            // The type replaces the previous one, so that the content is sent with the new type.
            let declared = if part_type.is_some() { &mut part_type } else { &mut definition.mime_type };
            *declared = mime_type;
        }
        let named = part_type.as_deref().or(definition.mime_type.as_deref());
        let kind = match kind {
            Some(kind) => kind.replacing(named, &bytes),
            None => PartKind::of(named, &bytes),
        };
        let labels = old.map(|old| old.labels.clone()).unwrap_or_default();
        let parts = vec![NewPart::new(part_uri, part_type, kind, bytes).with_meta(meta)];
        Ok(NewResource { uri, definition, labels, parts, source: None })
    }
}

impl Registered for Resource {
    fn most(limits: &CatalogLimits) -> usize {
        limits.resources_per_agent
    }

    fn needs_check(new: &NewResource) -> bool {
        new.source.is_some()
    }

    async fn check(catalog: &Catalog, tenant: TenantId, new: &NewResource) -> Result<(), Fault> {
        match &new.source {
            Some(source) => catalog.check_source(tenant, source).await,
            None => Ok(()),
        }
    }

    fn is_checked_as(&self, new: &NewResource) -> bool {
        new.source.is_none()
    }

    async fn add(
        catalog: &Catalog,
        write: &mut Write,
        target: &Target,
        new: &NewResource,
    ) -> Result<(), Fault> {
        check_outside(write, target, new.uri.as_str()).await?;
        Self::count(catalog, write, target, 1).await
    }

    async fn count(catalog: &Catalog, write: &mut Write, target: &Target, by: i32) -> Result<(), Fault> {
        let count = write.count_resources(target.agent, by).await?.ok_or(Fault::NO_AGENT)?;
        if by < 0 {
            return Ok(());
        }
        check_count::<Self>(usize::try_from(count).unwrap_or(0), &catalog.limits)
    }
}

impl Catalog {
    /// Replaces the contents of a resource by raw bytes; creates the resource, named after its URI, if it does not exist.
    ///
    /// # Errors
    /// As [`put`](Self::put), and [`Fault::InvalidParams`] if there are several contents.
    pub async fn put_content(
        self: &Arc<Self>,
        agent: &Agent,
        uri: ResourceUri,
        content: RawContent,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        self.put_made(
            agent,
            uri.clone(),
            move |old| content.clone().of(uri.clone(), old).map(Arc::new),
            condition,
            audited,
        )
        .await
    }

    /// Notifies the subscribers of a resource without new content: one that is registered, or that a mount or a template
    /// serves.
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
        let (catalog, agent) = (Arc::clone(self), AgentRef::from(agent));
        self.writer
            .detached(async move {
                catalog
                    .writer
                    .transact_shared(Scope::from(agent.uid), &audited, || {
                        async |write: &mut Write| {
                            let (target, old) = Target::lock::<Resource>(write, agent, uri.as_str()).await?;
                            let Target { scope, revision, .. } = target;
                            let Some(old) = old else {
                                let served = write.served(agent, &[uri.to_string()]).await?;
                                let audience = served.into_iter().flatten().next();
                                let audience = audience.ok_or(Fault::NotFound(Resource::NAME))?;
                                condition.check(None)?;
                                write.change_for(audience, scope, ChangeKind::ResourceTouched, uri.as_str());
                                write.set_summary(target.summary_of(uri.as_str(), ChangeHashes::default()));
                                return Ok(Written { revision, created: false });
                            };
                            condition.check(Some(old.revision))?;
                            let now = catalog.system.clock.now();
                            write.touch_resource(agent, &uri, revision, now).await?;
                            let audience = Audience::of(&old.labels);
                            write.change_for(audience, scope, ChangeKind::ResourceTouched, uri.as_str());
                            write.set_summary(target.summary(uri.as_str(), Some(&old), Some(&old)));
                            Ok(Written { revision, created: false })
                        }
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
