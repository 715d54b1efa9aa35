//! Fingerprints: one hash of all that is known of a subject, contents included, for the audit log. `docs/audit.md` defines
//! what each is computed from.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::chain::Digest;
use super::event::ChangeHashes;
use crate::model::agent::{Agent, KeyAge, Tenant};
use crate::model::api_key::ApiKey;
use crate::model::prompt::{Argument, NewPrompt, Prompt, PromptDefinition};
use crate::model::resource::{ContentHash, Definition, NewResource, Part, Resource};
use crate::model::template::{Completions, NewTemplate, ResourceTemplate};

/// Something with a fingerprint.
pub trait Fingerprint {
    /// The hash of everything known of it.
    fn fingerprint(&self) -> Digest;
}

/// A SHA-256 over parts, each preceded by its length in eight bytes.
#[derive(Default)]
struct Parts(Sha256);

impl Parts {
    fn add(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
        self
    }

    fn json(self, part: &impl Serialize) -> Self {
        // What is stored was JSON before.
        self.add(serde_json::to_vec(part).unwrap_or_default())
    }

    /// A part that was added to the format later: subjects that do not use it keep their fingerprints.
    fn unless_default<P: Serialize + Default + PartialEq>(self, part: &P) -> Self {
        if *part == P::default() { self } else { self.json(part) }
    }

    fn digest(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

fn of_resource<'a>(uri: &str, definition: &Definition, parts: impl Iterator<Item = &'a Part>) -> Digest {
    let known = Parts::default().add(uri).json(definition);
    let add = |known: Parts, part: &Part| {
        known
            .add(part.uri.as_ref().map_or("", |uri| uri.as_str()))
            .add(part.mime_type.as_deref().unwrap_or_default())
            .add(part.kind.as_str())
            .add(part.hash.0)
    };
    parts.fold(known, add).digest()
}

fn of_template(
    uri_template: &str,
    definition: &Definition,
    completions: &Completions,
    body: ContentHash,
) -> Digest {
    Parts::default().add(uri_template).json(definition).json(completions).add(body.0).digest()
}

fn of_prompt(
    name: &str,
    definition: &PromptDefinition,
    arguments: &[Argument],
    messages: ContentHash,
) -> Digest {
    Parts::default().add(name).json(definition).json(&arguments).add(messages.0).digest()
}

impl Fingerprint for Resource {
    fn fingerprint(&self) -> Digest {
        of_resource(self.uri.as_str(), &self.definition, self.parts.iter())
    }
}

impl Fingerprint for NewResource {
    fn fingerprint(&self) -> Digest {
        of_resource(self.uri.as_str(), &self.definition, self.parts.iter().map(|new| &new.part))
    }
}

impl Fingerprint for ResourceTemplate {
    fn fingerprint(&self) -> Digest {
        of_template(self.uri_template.as_str(), &self.definition, &self.completions, self.body)
    }
}

impl Fingerprint for NewTemplate {
    fn fingerprint(&self) -> Digest {
        of_template(self.uri_template.as_str(), &self.definition, &self.completions, self.body.hash)
    }
}

impl Fingerprint for Prompt {
    fn fingerprint(&self) -> Digest {
        of_prompt(self.name.as_str(), &self.definition, &self.arguments, self.messages)
    }
}

impl Fingerprint for NewPrompt {
    fn fingerprint(&self) -> Digest {
        of_prompt(self.name.as_str(), &self.definition, &self.arguments, self.messages.hash)
    }
}

impl Fingerprint for Agent {
    fn fingerprint(&self) -> Digest {
        let Self { uid, slug, tenant, description, access, enabled, limits, .. } = self;
        let known = Parts::default()
            .add(uid.0)
            .add(slug.as_str())
            .add(tenant.0)
            .add(&description.name)
            .json(&description.title)
            .json(&description.instructions)
            .add(access.as_str())
            .json(enabled)
            .json(limits);
        known.unless_default(&self.disabled_by_operator).digest()
    }
}

impl Fingerprint for Tenant {
    fn fingerprint(&self) -> Digest {
        let known = Parts::default().add(self.uid.0).add(self.slug.as_str()).add(&self.name);
        let known = known.json(&self.max_key_age.map(KeyAge::days)).json(&self.limits);
        known.unless_default(&self.agent_limits).digest()
    }
}

impl Fingerprint for ApiKey {
    fn fingerprint(&self) -> Digest {
        let end = |at: Option<time::OffsetDateTime>| at.map(time::OffsetDateTime::unix_timestamp);
        Parts::default()
            .add(self.uid.0)
            .add(&self.name)
            .json(&self.scopes)
            .json(&end(self.expires_at))
            .json(&end(self.revoked_at))
            .json(&self.networks.to_texts())
            .json(&self.limits.operator)
            .unless_default(&self.limits.owner)
            .digest()
    }
}

/// The fingerprints before and after a write, where there was and is something.
pub fn difference(old: Option<&impl Fingerprint>, new: Option<&impl Fingerprint>) -> ChangeHashes {
    ChangeHashes { before: old.map(Fingerprint::fingerprint), after: new.map(Fingerprint::fingerprint) }
}

/// The fingerprint of all definitions of an agent, each kind in byte order of its keys.
pub fn of_all(kinds: [Vec<(&str, Digest)>; 3]) -> Digest {
    let all = kinds.into_iter().fold(Parts::default(), |all, mut kind| {
        kind.sort_unstable_by_key(|(key, _)| *key);
        let each = kind.iter().fold(Parts::default(), |each, (_, digest)| each.add(digest.0));
        all.add(each.digest().0)
    });
    all.digest()
}
