//! Definitions as sent to and returned by the administration API and in manifests: one file per kind.

mod checks;
mod form;
mod manifest;
mod message;
mod prompt;
mod resource;
mod template;

pub(super) use checks::{Instructions, MimeText, Name, checked_mime};
pub(super) use form::Form;
pub use manifest::{ManifestInput, ManifestView};
pub(super) use prompt::{PromptInput, PromptView};
pub(super) use resource::{ResourceInput, ResourceView};
pub(super) use template::{TemplateInput, TemplateView};
