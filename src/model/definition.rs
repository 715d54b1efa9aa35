//! The trait of all kinds of definitions: resources, resource templates, prompts, skills and mounts.

use std::borrow::Borrow;
use std::fmt;

use bytes::Bytes;

use super::audit::fingerprint::Fingerprint;
use super::content::ContentHash;
use super::fault::Fault;
use super::label::Labels;
use super::scope::{ChangeKind, Revision};

/// A kind of definition; the type is that of a registered definition.
pub trait DefinitionKind: Fingerprint + Clone + fmt::Debug + Send + Sync + 'static {
    /// Identifies a definition among those of its kind and agent.
    type Key: Borrow<str> + Clone + Ord + fmt::Debug + Send + Sync + 'static;
    /// A definition to be registered.
    type New: Fingerprint + fmt::Debug + Send + Sync + 'static;

    /// The kind in messages, singular.
    const NAME: &'static str;
    /// The list of the kind in manifests.
    const LIST: &'static str;
    /// The member and parameter that holds the key.
    const KEY: &'static str;
    /// Whether a manifest may lack the list, and then leaves the definitions as they are.
    const MAY_BE_ABSENT: bool = false;
    /// The change that adds a definition.
    const ADDED: ChangeKind;
    /// The change that removes a definition.
    const REMOVED: ChangeKind;
    /// Whether a change concerns a definition of this kind.
    const IS_CHANGED_BY: fn(ChangeKind) -> bool;
    /// Whether a change alters what a list of this kind shows.
    const IS_RELISTED_BY: fn(ChangeKind) -> bool;

    /// Parses a key.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], which names [`KEY`](Self::KEY).
    fn parse_key(text: &str) -> Result<Self::Key, Fault>;

    /// Its key.
    fn key(&self) -> &Self::Key;

    /// The key of a definition to be registered.
    fn key_of(new: &Self::New) -> &Self::Key;

    /// The labels of which a caller must have one; none for a definition that every caller sees.
    fn labels(&self) -> &Labels;

    /// The labels of a definition to be registered.
    fn labels_of(new: &Self::New) -> &Labels;

    /// The memory that it takes behind an `Arc`, with its key.
    fn memory(&self) -> usize;

    /// The revision of the agent's scope that last changed it.
    fn revision(&self) -> Revision;

    /// The hashes of its contents, each with the size in bytes if that is stored with the definition.
    fn contents(&self) -> Vec<(ContentHash, Option<usize>)>;

    /// The contents of a definition to be registered.
    fn contents_of(new: &Self::New) -> impl Iterator<Item = (ContentHash, &Bytes)> + Send;

    /// The hashes of contents that a definition to be registered references and that are stored already.
    fn kept(_new: &Self::New) -> Vec<ContentHash> {
        Vec::new()
    }

    /// How it differs from its replacement; `None` if both are the same.
    fn difference(&self, new: &Self::New) -> Option<Difference>;

    /// The changes besides that of the definition, with their subjects, when one replaces the other.
    fn further_changes(_old: Option<&Self>, _new: Option<&Self::New>) -> Vec<(ChangeKind, String)> {
        Vec::new()
    }

    /// How many it counts as towards the number of definitions of the agent, if that is stored.
    fn places(&self) -> usize {
        1
    }

    /// How many a definition to be registered counts as.
    fn places_of(_new: &Self::New) -> usize {
        1
    }
}

/// How a definition differs from its replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// The change that replaces it.
    pub change: ChangeKind,
    /// Whether the contents differ.
    pub contents: bool,
}
