//! What an agent registers, as it is sent to and shown by the admin surface and in manifests: one file a kind.

mod checks;
mod manifest;
mod message;
mod prompt;
mod resource;
mod template;

pub(super) use checks::{Instructions, MimeText, Name, checked_mime};
pub use manifest::{ManifestInput, ManifestShown};
pub(super) use prompt::{PromptInput, PromptShown};
pub(super) use resource::{ResourceInput, ResourceShown};
pub(super) use template::{TemplateInput, TemplateShown};
