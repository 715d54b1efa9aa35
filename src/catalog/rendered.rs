//! Reads that render: resources that a template serves, and prompts.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::Catalog;
use super::compiled::{Compiled, Source};
use super::read::SourceUse;
use super::render::RenderError;
use super::snapshot::view::View;
use super::template_set::Match;
use crate::identity::grant::Caller;
use crate::model::call::{Content, Contents, Messages};
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::message::{ContentBlock, ContentKind, EmbeddedResource, PromptMessage};
use crate::model::prompt::Prompt;
use crate::model::resource::PartKind;

/// How often purged contents are looked up again in a newer snapshot.
const MAX_LOOKS: usize = 3;

impl Catalog {
    /// Renders a template for a URI that it matches; `None` if its body is purged already.
    pub(super) async fn rendered(
        &self,
        caller: &Caller,
        uri: &ResourceUri,
        found: &Match,
    ) -> Result<Option<Contents>, Fault> {
        let template = &found.template;
        let variables_of = template.uri_template.clone();
        let compile = move |body: Bytes| {
            let variables: Vec<_> = variables_of.variables().collect();
            Compiled::body(text(&body)?, &variables)
        };
        let source = Source::Template(template.uri_template.clone());
        let compiled = self.compiled(caller, source, template.revision, template.body, compile).await?;
        let Some(compiled) = compiled else { return Ok(None) };
        let values: Vec<_> = found.values.iter().map(|(name, value)| (&**name, &**value)).collect();
        let body = compiled.render_body((&self.renderer, caller.payer()), &values).await?;
        Ok(Some(Contents {
            uri: uri.clone(),
            mime_type: template.definition.mime_type.clone(),
            parts: vec![Content::text(body)],
            revision: template.revision,
            fresh_for: None,
        }))
    }

    /// The messages of a prompt.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] if it does not exist or has no such arguments or values; [`Fault::MissingArguments`]; those
    /// of [`read_resource`](Self::read_resource) for the resources that it embeds.
    pub async fn get_prompt(
        &self,
        caller: &Caller,
        mut view: View,
        name: &str,
        arguments: &BTreeMap<String, String>,
        source_use: &dyn SourceUse,
    ) -> Result<Messages, Fault> {
        for _ in 0..MAX_LOOKS {
            let Some(prompt) = view.get::<Prompt>(name).cloned() else {
                return Err(Fault::unknown_prompt(name));
            };
            check_arguments(&prompt, arguments)?;
            match self.compiled_prompt(caller, &prompt).await? {
                Some(compiled) => {
                    let prompt = (&*prompt, &*compiled);
                    return self.messages(caller, &view, prompt, arguments, source_use).await;
                }
                None => view = self.look_again(caller).await?,
            }
        }
        Err(Fault::StorageUnavailable)
    }

    async fn compiled_prompt(
        &self,
        caller: &Caller,
        prompt: &Arc<Prompt>,
    ) -> Result<Option<Arc<Compiled>>, Fault> {
        let arguments_of = Arc::clone(prompt);
        let compile = move |json: Bytes| {
            let arguments: Vec<_> = arguments_of.arguments.iter().map(|argument| &*argument.name).collect();
            let messages =
                serde_json::from_slice(&json).map_err(|error| RenderError::Failed(error.to_string()))?;
            Compiled::prompt(messages, &arguments, json.len()).map_err(|refused| refused.error)
        };
        let source = Source::Prompt(prompt.name.clone());
        self.compiled(caller, source, prompt.revision, prompt.messages, compile).await
    }

    async fn messages(
        &self,
        caller: &Caller,
        view: &View,
        (prompt, compiled): (&Prompt, &Compiled),
        arguments: &BTreeMap<String, String>,
        source_use: &dyn SourceUse,
    ) -> Result<Messages, Fault> {
        let values: Vec<_> = arguments.iter().map(|(name, value)| (&**name, &**value)).collect();
        let rendered = compiled.render_messages((&self.renderer, caller.payer()), &values).await?;
        let mut settled = true;
        let mut messages = Vec::with_capacity(rendered.len());
        let mut room = self.limits.embedded_bytes;
        for message in rendered {
            match &message.content.kind {
                ContentKind::Resource(resource) if resource.is_reference() => {
                    settled = false;
                    let uri = ResourceUri::parse(&resource.uri)
                        .map_err(|error| Fault::invalid_params(format!("{} {error}", resource.uri)))?;
                    let answering = view.answering(&uri)?;
                    let contents = Box::pin(self.read_resource(caller, &uri, answering, source_use)).await?;
                    room = room.checked_sub(size(&contents)).ok_or_else(|| {
                        let most = self.limits.embedded_bytes;
                        Fault::invalid_params(format!("what the prompt embeds is longer than {most} bytes"))
                    })?;
                    embed(&mut messages, &message, resource, &contents)?;
                }
                _ => messages.push(message),
            }
        }
        let description = prompt.definition.description.clone();
        Ok(Messages { description, messages, settled, revision: prompt.revision })
    }
}

fn check_arguments(prompt: &Prompt, given: &BTreeMap<String, String>) -> Result<(), Fault> {
    prompt.check_arguments(given)?;
    let missing: Vec<_> = prompt.missing(given).map(|argument| argument.name.clone()).collect();
    if missing.is_empty() { Ok(()) } else { Err(Fault::MissingArguments(missing)) }
}

fn size(contents: &Contents) -> usize {
    contents.parts.iter().map(|part| part.bytes.len()).sum()
}

/// Adds a message for each part of what one refers to, with the same role, annotations and metadata, and the MIME type
/// and `_meta` of the reference if it has them. A resource without contents is embedded as an empty text.
fn embed(
    messages: &mut Vec<PromptMessage>,
    naming: &PromptMessage,
    reference: &EmbeddedResource,
    contents: &Contents,
) -> Result<(), Fault> {
    let empty = [Content::text(Bytes::new())];
    let parts = if contents.parts.is_empty() { &empty[..] } else { &contents.parts[..] };
    for part in parts {
        let (text, blob) = match part.kind {
            PartKind::Text => (Some(text(&part.bytes)?.to_owned()), None),
            PartKind::Blob => (None, Some(STANDARD.encode(&part.bytes))),
        };
        let mime_type = reference.mime_type.as_deref().or_else(|| contents.mime_type_of(part));
        let resource = EmbeddedResource {
            uri: contents.uri_of(part).to_string(),
            mime_type: mime_type.map(str::to_owned),
            text,
            blob,
            meta: reference.meta.as_ref().or(part.meta.as_ref()).cloned(),
        };
        let ContentBlock { annotations, meta, .. } = naming.content.clone();
        let content = ContentBlock { kind: ContentKind::Resource(resource), annotations, meta };
        messages.push(PromptMessage { role: naming.role, content });
    }
    Ok(())
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, RenderError> {
    std::str::from_utf8(bytes).map_err(|_| RenderError::Failed("a stored text is not UTF-8".to_owned()))
}
