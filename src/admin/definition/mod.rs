//! What the JSON of definitions has in common, and manifests, which hold those of every kind.

pub(super) mod checks;
pub(super) mod form;
mod manifest;
pub(super) mod message;
pub(super) mod routes;

pub use manifest::{ManifestInput, ManifestView};
