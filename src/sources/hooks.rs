//! Inbound webhooks: their creation and deletion, and what a signed request changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use uuid::Uuid;

use super::connections::Connections;
use super::secrets::KeyFileError;
use super::webhook::{REMEMBERED, SECRET_BYTES, SECRET_PREFIX, Signed};
use crate::model::audience::Audience;
use crate::model::audit::fingerprint::difference;
use crate::model::audit::write::AuditedWrite;
use crate::model::caller::Payer;
use crate::model::fault::{Fault, shortened};
use crate::model::hook::{Hook, HookSubject};
use crate::model::ids::{AgentRef, HookId, TenantId};
use crate::model::precondition::{Precondition, Written};
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::store::write::{Write, WriteSummary};

/// The maximum number of hooks of an agent.
const MAX_HOOKS: i64 = 100;
/// The maximum number of resources that a hook names.
const MAX_URIS: usize = 100;
/// How many resources a request may name for the cost of a write: for each, all templates may be matched.
const URIS_OF_A_WRITE: usize = 10;
/// What the encrypted secret of a hook is bound to besides its UUID.
pub(super) const SECRET: &str = "secret";
const NO_HOOK: Fault = Fault::NotFound("hook");
const NO_TENANT: Fault = Fault::NotFound("tenant");

/// A request to a hook whose signature holds.
#[derive(Debug)]
pub struct Delivery {
    hook: Hook,
    message: String,
}

impl Delivery {
    /// The tenant of the hook.
    pub fn tenant(&self) -> TenantId {
        self.hook.agent.tenant
    }

    /// What it costs: as much as a write for each ten resources that the hook names.
    pub fn cost(&self, write: u32) -> u32 {
        let tens = self.hook.subject.uris().len().div_ceil(URIS_OF_A_WRITE).max(1);
        u32::try_from(tens).unwrap_or(u32::MAX).saturating_mul(write)
    }
}

impl Connections {
    /// Creates a hook of an agent; returns it with its secret, which is not shown again.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] for resources and mounts that do not exist, and without a key to encrypt the secret.
    pub async fn create_hook(
        self: &Arc<Self>,
        agent: AgentRef,
        subject: HookSubject,
        audited: AuditedWrite,
    ) -> Result<(Hook, String), Fault> {
        if let HookSubject::Resources(uris) = &subject
            && !(1..=MAX_URIS).contains(&uris.len())
        {
            return Err(Fault::invalid_params(format!("uris must be a list of 1 to {MAX_URIS} resources")));
        }
        let this = Arc::clone(self);
        let scope = Scope::from(agent.tenant);
        self.writer
            .detached(async move {
                let work = async |write: &mut Write| this.insert_hook(write, agent, subject).await;
                this.writer.transact(scope, &audited, work).await
            })
            .await
    }

    async fn insert_hook(
        &self,
        write: &mut Write,
        agent: AgentRef,
        subject: HookSubject,
    ) -> Result<(Hook, String), Fault> {
        // Secrets are not encrypted under another key meanwhile.
        write.lock_connections().await?;
        let revision = write.lock(Scope::from(agent.tenant)).await?.ok_or(NO_TENANT)?;
        if write.hook_count(agent).await? >= MAX_HOOKS {
            return Err(Fault::invalid_params(format!("an agent has at most {MAX_HOOKS} hooks; delete one")));
        }
        check_subject(write, agent, &subject).await?;
        let keys = self.keys.read().await.map_err(|error| match error {
            KeyFileError::NotSet => Fault::from(error),
            error => unusable(error),
        })?;
        let mut secret = [0; SECRET_BYTES];
        self.system.random.fill(&mut secret)?;
        let uid = HookId(self.system.uid()?);
        let sealed = keys.seal(uid.0, SECRET, &secret, self.system.random.as_ref())?;
        let hook = Hook { uid, agent, subject, sealed, created_at: self.system.clock.now(), revision };
        write.put_hook(&hook).await?;
        write.change(Scope::from(agent.tenant), ChangeKind::Hook, uid.to_string());
        write.set_summary(summary(&hook, revision, None, Some(&hook)));
        Ok((hook, format!("{SECRET_PREFIX}{}", STANDARD.encode(secret))))
    }

    /// The hooks of an agent after an id, the oldest first.
    pub async fn hooks(&self, agent: AgentRef, after: Uuid, limit: i64) -> Result<Vec<Hook>, Fault> {
        Ok(self.store.hooks(agent, after, limit).await?)
    }

    /// A hook with the slug of its agent.
    ///
    /// # Errors
    /// [`Fault::NotFound`].
    pub async fn hook(&self, id: &str) -> Result<(Hook, String), Fault> {
        let uid = id.parse().map(HookId).map_err(|_| NO_HOOK)?;
        self.store.hook(uid).await?.ok_or(NO_HOOK)
    }

    /// Deletes a hook.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`].
    pub async fn delete_hook(
        self: &Arc<Self>,
        hook: Hook,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        let this = Arc::clone(self);
        let scope = Scope::from(hook.agent.tenant);
        self.writer
            .detached(async move {
                let work = async |write: &mut Write| {
                    let revision = write.lock(scope).await?.ok_or(NO_TENANT)?;
                    if !write.delete_hook(hook.uid).await? {
                        return Err(NO_HOOK);
                    }
                    condition.check(Some(hook.revision))?;
                    write.change(scope, ChangeKind::Hook, hook.uid.to_string());
                    write.set_summary(summary(&hook, revision, Some(&hook), None));
                    Ok(Written { revision, created: false })
                };
                this.writer.transact(scope, &audited, work).await
            })
            .await
    }

    /// Reads the signature of a request to a hook, which is checked before its body is read.
    ///
    /// # Errors
    /// [`Fault::Unauthenticated`] if it cannot be valid.
    pub fn signature(&self, headers: &HeaderMap) -> Result<Signed, Fault> {
        Signed::read(headers, self.system.clock.now()).ok_or(Fault::Unauthenticated)
    }

    /// Verifies a request to a hook.
    ///
    /// # Errors
    /// [`Fault::Unauthenticated`] for an unknown hook and for a signature that does not hold.
    pub async fn verify(
        &self,
        id: &str,
        signed: Signed,
        body: &[u8],
        payer: Payer,
    ) -> Result<Delivery, Fault> {
        let uid = id.parse().map(HookId).map_err(|_| Fault::Unauthenticated)?;
        let look_up = async || self.store.hook(uid).await;
        let found = self.loader.load_within(&self.hook_look_ups, payer, look_up).await?;
        let (hook, _) = found.ok_or(Fault::Unauthenticated)?;
        let keys = self.keys.read().await.map_err(unusable)?;
        let secret = keys.open(uid.0, SECRET, &hook.sealed).map_err(unusable)?;
        if !signed.is_of(body, &secret) {
            return Err(Fault::Unauthenticated);
        }
        Ok(Delivery { hook, message: signed.message })
    }

    /// Receives a request to a hook: what the hook names counts as changed, or is scanned, once for each message.
    ///
    /// # Errors
    /// [`Fault::Unauthenticated`] if the agent is gone.
    pub async fn receive(
        self: &Arc<Self>,
        Delivery { hook, message }: Delivery,
        audited: AuditedWrite,
    ) -> Result<(), Fault> {
        let this = Arc::clone(self);
        let scope = Scope::from(hook.agent.uid);
        self.writer
            .detached(async move {
                let work = async |write: &mut Write| this.count(write, &hook, &message).await;
                this.writer.transact(scope, &audited, work).await
            })
            .await
    }

    async fn count(&self, write: &mut Write, hook: &Hook, message: &str) -> Result<(), Fault> {
        let scope = Scope::from(hook.agent.uid);
        let revision = write.lock(scope).await?.ok_or(Fault::Unauthenticated)?;
        let now = self.system.clock.now();
        if !write.count_message(hook.uid, message, now, now - REMEMBERED).await? {
            return Ok(());
        }
        match &hook.subject {
            HookSubject::Resources(uris) => {
                let touched = write.touch_resources(hook.agent, uris, revision, now).await?;
                let mut concerned: BTreeMap<_, _> = uris.iter().map(|uri| (uri.to_string(), None)).collect();
                concerned.extend(touched.into_iter().map(|(uri, labels)| (uri, Some(Audience::of(&labels)))));
                // Mounts and templates answer callers who do not see the resource.
                let is_open = |audience: &Option<Audience>| *audience == Some(Audience::Everybody);
                let others = concerned.iter().filter(|(_, audience)| !is_open(audience));
                let others: Vec<_> = others.map(|(uri, _)| uri.clone()).collect();
                let served = write.served(hook.agent, &others).await?;
                for (uri, served) in others.into_iter().zip(served) {
                    let audience = concerned.entry(uri).or_default();
                    *audience = [audience.take(), served].into_iter().flatten().reduce(Audience::or);
                }
                for (uri, audience) in concerned {
                    if let Some(audience) = audience {
                        write.change_for(audience, scope, ChangeKind::ResourceTouched, uri);
                    }
                }
            }
            HookSubject::Mount(name) => {
                if write.request_scan(hook.agent, name, revision).await? {
                    write.change(scope, ChangeKind::MountRequested, name.as_str());
                }
            }
        }
        write.set_summary(summary(hook, revision, Some(hook), Some(hook)));
        Ok(())
    }

    /// Encrypts the secrets of hooks under the first key; returns how many were encrypted under another.
    pub(super) async fn rekey_hooks(
        &self,
        write: &mut Write,
        keys: &super::secrets::KeyRing,
        at_once: i64,
    ) -> Result<usize, Fault> {
        let (mut after, mut rekeyed) = (Uuid::nil(), 0);
        loop {
            let page = write.hooks_of_other_keys(keys.first(), after, at_once).await?;
            for mut hook in page.iter().cloned() {
                let missing = || KeyFileError::Missing {
                    file: self.keys.name(),
                    key: hook.sealed.key.clone(),
                    secret: format!("the secret of the hook {}", hook.uid),
                };
                let value = keys.open(hook.uid.0, SECRET, &hook.sealed).map_err(|_| missing())?;
                hook.sealed = keys.seal(hook.uid.0, SECRET, &value, self.system.random.as_ref())?;
                write.put_hook(&hook).await?;
                rekeyed += 1;
            }
            match page.last() {
                Some(last) => after = last.uid.0,
                None => return Ok(rekeyed),
            }
        }
    }
}

/// Checks that an agent has what a hook names.
async fn check_subject(write: &mut Write, agent: AgentRef, subject: &HookSubject) -> Result<(), Fault> {
    match subject {
        HookSubject::Resources(uris) => {
            let unregistered = write.unregistered(agent, uris).await?;
            let served = write.served(agent, &unregistered).await?;
            let mut unknown = unregistered.iter().zip(&served).filter(|(_, audience)| audience.is_none());
            unknown.next().map_or(Ok(()), |(unknown, _)| {
                Err(Fault::invalid_params(format!("uris: no such resource: {}", shortened(unknown))))
            })
        }
        HookSubject::Mount(name) => {
            let is_known = write.mounts(agent).await?.iter().any(|mount| mount.name == *name);
            let unknown = || Err(Fault::invalid_params(format!("mount: no such mount: {name}")));
            if is_known { Ok(()) } else { unknown() }
        }
    }
}

/// A secret that cannot be read is a fault of the gateway's configuration, and none of the sender's.
fn unusable(error: impl std::fmt::Display) -> Fault {
    Fault::Internal(format!("the secret of a hook cannot be encrypted or decrypted: {error}"))
}

/// The summary of a write of a hook, for the audit log.
fn summary(hook: &Hook, revision: Revision, old: Option<&Hook>, new: Option<&Hook>) -> WriteSummary {
    WriteSummary {
        subject: hook.uid.to_string(),
        revision,
        created: old.is_none(),
        tenant: Some(hook.agent.tenant),
        agent: Some(hook.agent.uid),
        difference: difference(old, new),
    }
}
