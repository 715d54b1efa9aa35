//! Looking up keys that are not in memory: at whose expense, and what is kept of the answer.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use super::Registry;
use super::access::{Grant, Shown};
use super::strangers::{absent, is_present};
use crate::model::fault::Fault;
use crate::model::ids::{Slug, TenantId};
use crate::model::key::{KeyHash, KeyKind};
use crate::model::sources::FailPoint;
use crate::store::key_lookup::KeyLookup;

/// What is known of a credential before it is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognition {
    /// It is in memory as valid, or a key that this replica knows to be issued: its address pays nothing.
    Recognized,
    /// Verifying it takes no look-up of a key: no credential, a token, a key that is known not to exist.
    Unverified,
    /// A key that this replica does not know to be issued: its address pays for the look-up.
    NotIssued,
}

/// Bounds how often the database is asked for keys that are not known to be issued, by all addresses together.
#[derive(Debug)]
pub(super) struct LookUpLimit(DefaultDirectRateLimiter);

impl LookUpLimit {
    pub(super) fn new(per_second: u32) -> Self {
        let rate = NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN);
        Self(RateLimiter::direct(Quota::per_second(rate)))
    }

    fn take(&self) -> Result<(), Fault> {
        self.0.check().map_err(|_| Fault::Unavailable { retry_after: Duration::from_secs(1) })
    }
}

/// What a look-up began with.
struct Began {
    raises: u64,
    timeline: u64,
    directory: u64,
}

impl Registry {
    /// What is known of a credential before it is verified.
    pub fn recognize(&self, shown: &Shown<'_>) -> Recognition {
        let recognized = match shown {
            Shown::Nobody => false,
            Shown::Key(key, _) if key.kind() == KeyKind::Operator => false,
            Shown::Key(key, _) => {
                let hash = key.hash();
                if !self.key_tenants.contains_key(&hash) && !self.issued.contains(hash) {
                    let absent = self.unknown_keys.contains_key(&hash);
                    return if absent { Recognition::Unverified } else { Recognition::NotIssued };
                }
                true
            }
            Shown::Token(token, _) => self.remembers_token(token),
        };
        if recognized { Recognition::Recognized } else { Recognition::Unverified }
    }

    /// Looks a key up, with the agent that `slug` names; answers its tenant, `None` for a key that does not exist.
    ///
    /// Keys that are not known to be issued are bounded, and wait for each other alone.
    pub(super) async fn look_up(&self, hash: KeyHash, slug: Option<&str>) -> Result<Option<TenantId>, Fault> {
        if self.unknown_keys.contains_key(&hash) {
            return Ok(None);
        }
        let slug = slug.filter(|slug| Slug::is_slug(slug));
        let began = Began {
            raises: self.raises.load(Ordering::SeqCst),
            timeline: self.timeline(),
            directory: self.directory.timeline(),
        };
        let fills = if self.key_tenants.contains_key(&hash) || self.issued.contains(hash) {
            &self.fills
        } else {
            self.key_look_ups.take()?;
            &self.unissued_fills
        };
        let found = self.fill_within(fills, async || self.store.look_up_key(hash, slug).await).await?;
        self.sources.pause(FailPoint::CredentialFillRead).await;
        let tenant = found.as_ref().map(|found| found.credential.tenant);
        // What another timeline of the database knew of the key says nothing now.
        if self.timeline() == began.timeline {
            match found {
                Some(found) => self.keep_look_up(hash, slug, found, &began),
                None => self.unknown_keys.insert(hash, ()),
            }
        }
        Ok(tenant)
    }

    /// Keeps what was looked up. The cells may be made only now, when it is known whose they are: a scope that was raised
    /// since the look-up began may not have found its cell, so nothing is kept then, and each fact is loaded by itself.
    fn keep_look_up(&self, hash: KeyHash, slug: Option<&str>, found: KeyLookup, began: &Began) {
        let KeyLookup { credential, tenant, gateway, agent } = found;
        self.key_tenants.insert(hash, credential.tenant);
        let own = self.tenant_cell(credential.tenant);
        let access =
            slug.map(|slug| agent.map_or_else(|| absent(slug).map(|absent| (absent, gateway)), Some));
        let access =
            access.map(|access| access.map(|(access, head)| (self.tenant_cell(access.tenant), access, head)));
        if self.raises.load(Ordering::SeqCst) != began.raises {
            return;
        }
        own.keep(tenant, own.timeline(), |held| held.keep_key(hash, &Grant::of_key(credential, hash)));
        let Some((slug, Some((cell, access, head)))) = slug.zip(access) else { return };
        let address = is_present(&access).then_some((access.tenant, access.agent));
        self.directory.keep(gateway, began.directory, |held| held.keep_agent(slug, address));
        cell.keep(head, cell.timeline(), |held| held.keep_agent(access));
    }

    /// The grant of a key that is not in memory as of what is known.
    pub(super) async fn load_grant(&self, hash: KeyHash, slug: Option<&str>) -> Result<Arc<Grant>, Fault> {
        let known = self.key_tenants.get(&hash);
        let held =
            known.filter(|tenant| self.tenant_cell(*tenant).get_stale(|held| held.key(hash)).is_some());
        let tenant = match held {
            // What is held is behind: the changes are fewer than what the look-up reads.
            Some(tenant) => tenant,
            None => self.look_up(hash, slug).await?.ok_or(Fault::Unauthenticated)?,
        };
        self.find_grant(tenant, hash).await?.ok_or(Fault::Unauthenticated)
    }
}
