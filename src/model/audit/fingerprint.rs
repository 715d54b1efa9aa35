//! Fingerprints: one hash of everything that is stored of a subject, including contents, for the audit log.
//! `docs/audit.md` defines how each is computed.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::digest::Digest;
use super::event::ChangeHashes;
use crate::model::agent::{Agent, KeyAge, Tenant};
use crate::model::key::ApiKey;

/// Something with a fingerprint.
pub trait Fingerprint {
    /// The hash of everything known of it.
    fn fingerprint(&self) -> Digest;
}

/// A SHA-256 over parts, each preceded by its length in eight bytes.
#[derive(Default)]
pub struct Parts(Sha256);

impl Parts {
    /// Adds bytes.
    #[must_use]
    pub fn part(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
        self
    }

    /// Adds a value as JSON.
    #[must_use]
    pub fn json(self, part: &impl Serialize) -> Self {
        // What is stored was JSON before.
        self.part(serde_json::to_vec(part).unwrap_or_default())
    }

    /// Adds a part that was added to the format later: subjects that do not use it keep their fingerprints.
    #[must_use]
    pub fn unless_default<P: Serialize + Default + PartialEq>(self, part: &P) -> Self {
        if *part == P::default() { self } else { self.json(part) }
    }

    /// The hash of all parts.
    pub fn digest(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl Fingerprint for Agent {
    fn fingerprint(&self) -> Digest {
        let Self { uid, slug, tenant, description, access, enabled, limits, .. } = self;
        let known = Parts::default()
            .part(uid.0)
            .part(slug.as_str())
            .part(tenant.0)
            .part(&description.name)
            .json(&description.title)
            .json(&description.instructions)
            .part(access.as_str())
            .json(enabled)
            .json(limits);
        known.unless_default(&self.disabled_by_operator).unless_default(&description.tools).digest()
    }
}

impl Fingerprint for Tenant {
    fn fingerprint(&self) -> Digest {
        let known = Parts::default().part(self.uid.0).part(self.slug.as_str()).part(&self.name);
        let known = known.json(&self.max_key_age.map(KeyAge::days)).json(&self.limits);
        known.unless_default(&self.agent_limits).digest()
    }
}

impl Fingerprint for ApiKey {
    fn fingerprint(&self) -> Digest {
        let end = |at: Option<time::OffsetDateTime>| at.map(time::OffsetDateTime::unix_timestamp);
        Parts::default()
            .part(self.uid.0)
            .part(&self.name)
            .json(&self.scopes)
            .json(&end(self.expires_at))
            .json(&end(self.revoked_at))
            .json(&self.networks.to_texts())
            .json(&self.limits.operator)
            .unless_default(&self.limits.owner)
            .unless_default(&self.labels)
            .digest()
    }
}

/// The fingerprints before and after a write; `None` if the subject did not exist.
pub fn difference(old: Option<&impl Fingerprint>, new: Option<&impl Fingerprint>) -> ChangeHashes {
    ChangeHashes { before: old.map(Fingerprint::fingerprint), after: new.map(Fingerprint::fingerprint) }
}

/// The fingerprint of all definitions of an agent, each kind in byte order of its keys.
pub fn combine_fingerprints<'k>(kinds: impl IntoIterator<Item = Vec<(&'k str, Digest)>>) -> Digest {
    let all = kinds.into_iter().fold(Parts::default(), |all, mut kind| {
        kind.sort_unstable_by_key(|(key, _)| *key);
        let each = kind.iter().fold(Parts::default(), |each, (_, digest)| each.part(digest.0));
        all.part(each.digest().0)
    });
    all.digest()
}

#[cfg(test)]
mod tests {
    use super::Parts;
    use crate::model::label::Labels;

    #[test]
    fn fingerprint_changes_with_labels_and_stays_without() {
        let labelled = |labels: &[&str]| {
            let labels = Labels::parse(labels.iter().copied()).unwrap();
            Parts::default().part("a").unless_default(&labels).digest()
        };
        assert_eq!(labelled(&[]), Parts::default().part("a").digest());
        assert_eq!(labelled(&["x", "y"]), labelled(&["y", "x", "x"]));
        assert_ne!(labelled(&["x"]), labelled(&["y"]));
        assert_ne!(labelled(&["x"]), labelled(&[]));
    }
}
