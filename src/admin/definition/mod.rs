//! The JSON that all kinds of definitions share, and manifests, which contain definitions of every kind.

pub(super) mod checks;
pub(super) mod completions;
pub(super) mod form;
mod manifest;
pub(super) mod message;
pub(super) mod routes;

pub use form::ContentLimits;
pub use manifest::{ManifestInput, ManifestView};
