//! Writes of connections: creation, changes, deletion, and the encryption of all secrets under another key.

use std::collections::BTreeMap;
use std::sync::Arc;

use content_source::Kind;
use serde_json::{Map, Value};

use super::connections::{Connections, NO_CONNECTION, opened};
use super::secrets::{KeyFileError, KeyRing};
use crate::model::audit::event::ChangeHashes;
use crate::model::audit::fingerprint::{Parts, difference};
use crate::model::audit::write::AuditedWrite;
use crate::model::connection::{
    ConnectionLimitChanges, ConnectionLimits, StoredConnection, StoredSecret, Tenants,
};
use crate::model::fault::Fault;
use crate::model::ids::{ConnectionId, Slug};
use crate::model::precondition::{Precondition, Written};
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::store::write::{Write, WriteSummary};

/// The maximum number of connections.
const MAX_CONNECTIONS: i64 = 10_000;
/// The maximum size of the settings of a connection as JSON, in bytes.
const MAX_SETTINGS_BYTES: usize = 64 << 10;
/// The maximum size of the secrets of a connection as JSON, in bytes.
const MAX_SECRET_BYTES: usize = 16 << 10;
/// How many connections are encrypted under another key at once.
const REKEYED_AT_ONCE: i64 = 500;

/// The tenants that a call names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantNames {
    /// All tenants.
    All,
    /// These tenants.
    Only(Vec<Slug>),
}

/// Changes of secrets by name; `null` removes one.
#[derive(Clone, Default)]
pub struct SecretChanges(pub Map<String, Value>);

/// A connection to be created.
pub struct NewConnection {
    /// Its id.
    pub slug: Slug,
    /// What it connects to.
    pub kind: Kind,
    /// The tenants that may use it.
    pub tenants: TenantNames,
    /// The settings of its kind.
    pub settings: Map<String, Value>,
    /// Its secrets.
    pub secrets: SecretChanges,
    /// The limits of fetches.
    pub limits: ConnectionLimits,
    /// Whether anything is fetched from it.
    pub enabled: bool,
}

/// Changes to a connection; `None` leaves a member unchanged.
pub struct ConnectionChange {
    /// The tenants that may use it.
    pub tenants: Option<TenantNames>,
    /// Members of the settings; `null` removes one.
    pub settings: Map<String, Value>,
    /// Members of the secrets.
    pub secrets: SecretChanges,
    /// The limits.
    pub limits: ConnectionLimitChanges,
    /// Whether anything is fetched from it.
    pub enabled: Option<bool>,
}

impl Connections {
    /// Creates a connection.
    ///
    /// # Errors
    /// [`Fault::AlreadyExists`]; [`Fault::InvalidParams`] for settings and secrets that its kind refuses, unknown tenants,
    /// and secrets without a key to encrypt them.
    pub async fn create(
        self: &Arc<Self>,
        new: NewConnection,
        audited: AuditedWrite,
    ) -> Result<StoredConnection, Fault> {
        let this = Arc::clone(self);
        self.writer
            .detached(async move {
                let work = async |write: &mut Write| this.insert(write, new).await;
                this.writer.transact(Scope::CONNECTIONS, &audited, work).await
            })
            .await
    }

    async fn insert(&self, write: &mut Write, new: NewConnection) -> Result<StoredConnection, Fault> {
        let revision = write.lock_connections().await?;
        if write.connection_named(&new.slug).await?.is_some() {
            return Err(Fault::AlreadyExists("a connection with this id"));
        }
        if write.connection_count().await? >= MAX_CONNECTIONS {
            return Err(Fault::invalid_params(format!(
                "there are {MAX_CONNECTIONS} connections, the maximum; delete one"
            )));
        }
        let mut stored = StoredConnection {
            uid: ConnectionId(self.system.uid()?),
            slug: new.slug,
            kind: new.kind,
            tenants: tenants(write, new.tenants).await?,
            settings: Map::new(),
            secrets: BTreeMap::new(),
            limits: new.limits,
            enabled: new.enabled,
            revision,
            created_at: self.system.clock.now(),
        };
        merge(&mut stored.settings, new.settings);
        self.set_secrets(&mut stored, new.secrets).await?;
        self.put(write, None, &stored).await?;
        Ok(stored)
    }

    /// Changes a connection.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`], and as [`create`](Self::create).
    pub async fn update(
        self: &Arc<Self>,
        slug: Slug,
        change: ConnectionChange,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<StoredConnection, Fault> {
        let this = Arc::clone(self);
        self.writer
            .detached(async move {
                let work = async |write: &mut Write| this.change(write, &slug, change, &condition).await;
                this.writer.transact(Scope::CONNECTIONS, &audited, work).await
            })
            .await
    }

    async fn change(
        &self,
        write: &mut Write,
        slug: &Slug,
        change: ConnectionChange,
        condition: &Precondition,
    ) -> Result<StoredConnection, Fault> {
        let revision = write.lock_connections().await?;
        let old = write.connection_named(slug).await?.ok_or(NO_CONNECTION)?;
        condition.check(Some(old.revision))?;
        let mut new = old.clone();
        if let Some(names) = change.tenants {
            new.tenants = tenants(write, names).await?;
        }
        merge(&mut new.settings, change.settings);
        new.limits = change.limits.apply_to(old.limits)?;
        new.enabled = change.enabled.unwrap_or(old.enabled);
        if new.settings != old.settings || !change.secrets.0.is_empty() {
            self.set_secrets(&mut new, change.secrets).await?;
        }
        if new != old {
            new.revision = revision;
            self.put(write, Some(&old), &new).await?;
        }
        Ok(new)
    }

    /// Changes secrets, and validates them with the settings. Those that remain are decrypted for it.
    async fn set_secrets(
        &self,
        of: &mut StoredConnection,
        SecretChanges(changes): SecretChanges,
    ) -> Result<(), Fault> {
        let settings = Value::Object(of.settings.clone()).to_string().len();
        if settings > MAX_SETTINGS_BYTES {
            return Err(Fault::invalid_params(format!(
                "settings are longer than {MAX_SETTINGS_BYTES} bytes"
            )));
        }
        let (set, removed): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(_, value)| !value.is_null());
        let is_changed = |name: &str| set.iter().chain(&removed).any(|(changed, _)| changed == name);
        of.secrets.retain(|name, _| !is_changed(name));
        if set.is_empty() && of.secrets.is_empty() {
            return self.connected(of, Map::new()).await.map(drop);
        }
        let keys = self.keys.read().await?;
        let remaining = of.secrets.keys().map(|name| Ok((name.clone(), opened(&keys, of, name)?)));
        let mut secrets = remaining.collect::<Result<Map<_, _>, Fault>>()?;
        secrets.extend(set.iter().cloned());
        let bytes: usize = secrets.iter().map(|(name, value)| name.len() + value.to_string().len()).sum();
        if bytes > MAX_SECRET_BYTES {
            return Err(Fault::invalid_params(format!("secrets are longer than {MAX_SECRET_BYTES} bytes")));
        }
        self.connected(of, secrets).await?;
        let updated_at = self.system.clock.now();
        for (name, value) in set {
            let value = value.to_string();
            let sealed = keys.seal(of.uid.0, &name, value.as_bytes(), self.system.random.as_ref())?;
            of.secrets.insert(name, StoredSecret { sealed, updated_at });
        }
        Ok(())
    }

    async fn put(
        &self,
        write: &mut Write,
        old: Option<&StoredConnection>,
        new: &StoredConnection,
    ) -> Result<(), Fault> {
        write.put_connection(new).await?;
        if old.is_none_or(|old| old.secrets != new.secrets) {
            write.put_secrets(new).await?;
        }
        write.change(Scope::CONNECTIONS, ChangeKind::Connection, new.uid.to_string());
        write.set_summary(summary(new, new.revision, old, Some(new)));
        Ok(())
    }

    /// Deletes a connection with its secrets.
    ///
    /// # Errors
    /// [`Fault::NotFound`], [`Fault::RevisionMismatch`]; [`Fault::InUse`] while definitions name it.
    pub async fn delete(
        self: &Arc<Self>,
        slug: Slug,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Written, Fault> {
        let this = Arc::clone(self);
        self.writer
            .detached(async move {
                let work = async |write: &mut Write| {
                    let revision = write.lock_connections().await?;
                    let old = write.connection_named(&slug).await?.ok_or(NO_CONNECTION)?;
                    condition.check(Some(old.revision))?;
                    if !write.delete_connection(old.uid).await? {
                        return Err(Fault::InUse(
                            "definitions name this connection; delete or change them first",
                        ));
                    }
                    write.change(Scope::CONNECTIONS, ChangeKind::Connection, old.uid.to_string());
                    write.set_summary(summary(&old, revision, Some(&old), None));
                    Ok(Written { revision, created: false })
                };
                this.writer.transact(Scope::CONNECTIONS, &audited, work).await
            })
            .await
    }

    /// Encrypts all secrets under the first key of the file; returns how many were encrypted under another, and the id of
    /// the key.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] if a secret cannot be decrypted; then nothing is changed.
    pub async fn rekey(self: &Arc<Self>, audited: AuditedWrite) -> Result<(usize, String), Fault> {
        let keys = self.keys.read().await?;
        let this = Arc::clone(self);
        self.writer
            .detached(async move {
                let work = async |write: &mut Write| this.rekey_all(write, &keys).await;
                let rekeyed = this.writer.transact(Scope::CONNECTIONS, &audited, work).await?;
                Ok((rekeyed, keys.first().to_owned()))
            })
            .await
    }

    async fn rekey_all(&self, write: &mut Write, keys: &KeyRing) -> Result<usize, Fault> {
        let revision = write.lock_connections().await?;
        let (mut after, mut rekeyed) = (String::new(), 0);
        loop {
            let page = write.connections_of_other_keys(keys.first(), &after, REKEYED_AT_ONCE).await?;
            for mut connection in page.iter().cloned() {
                for (name, secret) in &mut connection.secrets {
                    if secret.sealed.key == keys.first() {
                        continue;
                    }
                    let missing = KeyFileError::Missing {
                        file: self.keys.name(),
                        key: secret.sealed.key.clone(),
                        secret: format!("the secret {name} of the connection {}", connection.slug),
                    };
                    let value = keys.open(connection.uid.0, name, &secret.sealed).map_err(|_| missing)?;
                    let random = self.system.random.as_ref();
                    secret.sealed = keys.seal(connection.uid.0, name, &value, random)?;
                    rekeyed += 1;
                }
                write.put_secrets(&connection).await?;
                write.change(Scope::CONNECTIONS, ChangeKind::ConnectionKey, connection.uid.to_string());
            }
            match page.last() {
                Some(last) => after = last.slug.to_string(),
                None => break,
            }
        }
        let of_hooks = self.rekey_hooks(write, keys, REKEYED_AT_ONCE).await?;
        if of_hooks > 0 {
            // Names no connection: it changes nothing in memory.
            write.change(Scope::CONNECTIONS, ChangeKind::ConnectionKey, "hooks");
        }
        rekeyed += of_hooks;
        let after = Parts::default().part(keys.first()).digest();
        let difference = ChangeHashes { before: None, after: Some(after) };
        write.set_summary(WriteSummary {
            created: false,
            ..WriteSummary::new("secrets", revision, difference)
        });
        Ok(rekeyed)
    }
}

/// Resolves the tenants that a call names.
async fn tenants(write: &mut Write, names: TenantNames) -> Result<Tenants, Fault> {
    let TenantNames::Only(slugs) = names else { return Ok(Tenants::All) };
    if slugs.len() > Tenants::MAX {
        return Err(Fault::invalid_params(format!(
            "tenants: at most {} are named; \"*\" is all of them",
            Tenants::MAX
        )));
    }
    let names: Vec<_> = slugs.iter().map(Slug::to_string).collect();
    let known = write.tenants_named(&names).await?;
    match slugs.iter().find(|slug| !known.contains_key(*slug)) {
        None => Ok(Tenants::Only(known)),
        Some(unknown) => Err(Fault::unknown("tenant", unknown.as_str())),
    }
}

/// Sets members; `null` removes one.
fn merge(into: &mut Map<String, Value>, changes: Map<String, Value>) {
    for (name, value) in changes {
        if value.is_null() {
            into.remove(&name);
        } else {
            into.insert(name, value);
        }
    }
}

/// The summary of a write that creates, changes or deletes a connection, for the audit log.
fn summary(
    connection: &StoredConnection,
    revision: Revision,
    old: Option<&StoredConnection>,
    new: Option<&StoredConnection>,
) -> WriteSummary {
    WriteSummary::new(connection.slug.as_str(), revision, difference(old, new))
}
