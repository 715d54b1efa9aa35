//! Compiled bodies of templates and messages of prompts, and the cache of them.

use std::sync::Arc;

use bytes::Bytes;
use uri_template::UriTemplate;

use super::render::{RenderError, Renderer, Template};
use crate::cache::{MemoryBudget, WeighedCache};
use crate::model::caller::Payer;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, ResourceUri, TenantId};
use crate::model::message::{ContentKind, PromptMessage, is_template};
use crate::model::prompt::PromptName;
use crate::model::scope::Revision;

/// Most bytes of memory that messages take for each byte of their JSON.
const MESSAGE_WEIGHT: usize = 4;

/// The placeholder of a text that is rendered: the shortest text that [`is_template`].
const TO_RENDER: &str = "{";

/// Messages whose texts are templates, or one text that is one.
#[derive(Debug)]
pub(super) struct Compiled {
    /// As registered, with [`TO_RENDER`] in the place of each text to render, so that copying the messages copies no
    /// text in vain.
    messages: Vec<PromptMessage>,
    /// The texts to render: of messages, each text that [`is_template`], in order.
    templates: Vec<Arc<Template>>,
    weight: usize,
}

/// Identifies a version of a source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// The body of a resource template.
    Template(UriTemplate),
    /// The messages of a prompt.
    Prompt(PromptName),
}

/// The compiled templates and prompts.
#[derive(Debug)]
pub(super) struct Compilations(Arc<WeighedCache<CompilationKey, Arc<Compiled>>>);

/// The source at a revision, and the bytes that it had then: in another timeline of the database a revision is another.
pub(super) type CompilationKey = (AgentId, Source, Revision, ContentHash);

impl Compilations {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self(WeighedCache::new(budget, "compiled", |_| false))
    }

    /// The compiled form of a source at a revision, if it is cached.
    pub(super) fn get(&self, key: &CompilationKey) -> Option<Arc<Compiled>> {
        self.0.get(key)
    }

    /// Caches what was compiled for a tenant.
    pub(super) fn insert(&self, key: CompilationKey, compiled: Arc<Compiled>, tenant: TenantId) {
        let weight = compiled.weight;
        self.0.insert(key, compiled, Some(tenant), weight);
    }
}

/// Why the messages of a prompt are refused.
#[derive(Debug)]
pub(super) struct MessageError {
    /// Which message.
    pub(super) index: usize,
    /// The error of one of its texts.
    pub(super) error: RenderError,
}

impl Compiled {
    /// Checks and compiles the body of a template.
    pub(super) fn body(source: &str, variables: &[impl AsRef<str>]) -> Result<Self, RenderError> {
        let template = Template::parse(source, variables)?;
        Ok(Self { messages: Vec::new(), weight: template.weight(), templates: vec![Arc::new(template)] })
    }

    /// Checks and compiles the messages of a prompt; `bytes` is their length as JSON.
    pub(super) fn prompt(
        mut messages: Vec<PromptMessage>,
        arguments: &[impl AsRef<str>],
        bytes: usize,
    ) -> Result<Self, MessageError> {
        let mut templates = Vec::new();
        for (index, message) in messages.iter_mut().enumerate() {
            for text in message.templates_mut().filter(|text| is_template(text)) {
                let template = Template::parse(text, arguments);
                templates.push(Arc::new(template.map_err(|error| MessageError { index, error })?));
                TO_RENDER.clone_into(text);
            }
        }
        let weight = templates.iter().map(|template| template.weight()).sum::<usize>();
        Ok(Self { messages, weight: weight + MESSAGE_WEIGHT * bytes, templates })
    }

    /// Renders every text with the same values.
    pub(super) async fn texts(
        &self,
        (renderer, payer): (&Renderer, Payer),
        values: &[(&str, &str)],
    ) -> Result<Vec<String>, Fault> {
        if self.templates.is_empty() {
            return Ok(Vec::new());
        }
        Ok(renderer.render(payer, &self.templates, values).await?)
    }

    /// The text of the body.
    pub(super) async fn render_body(
        &self,
        (renderer, payer): (&Renderer, Payer),
        values: &[(&str, &str)],
    ) -> Result<Bytes, Fault> {
        let text = self.texts((renderer, payer), values).await?.pop();
        text.map(Bytes::from).ok_or_else(|| Fault::Internal("a template has no body".to_owned()))
    }

    /// The messages, with the URIs in them checked.
    pub(super) async fn render_messages(
        &self,
        (renderer, payer): (&Renderer, Payer),
        values: &[(&str, &str)],
    ) -> Result<Vec<PromptMessage>, Fault> {
        let mut texts = self.texts((renderer, payer), values).await?.into_iter();
        let mut messages = self.messages.clone();
        for text in
            messages.iter_mut().flat_map(PromptMessage::templates_mut).filter(|text| is_template(text))
        {
            *text = texts.next().ok_or_else(|| Fault::Internal("a text was not rendered".to_owned()))?;
        }
        settle_uris(&mut messages)?;
        Ok(messages)
    }
}

/// Checks the URIs in messages, and puts the URI in the place of an IRI.
fn settle_uris(messages: &mut [PromptMessage]) -> Result<(), Fault> {
    for (index, message) in messages.iter_mut().enumerate() {
        let uri = match &mut message.content.kind {
            ContentKind::ResourceLink(link) => &mut link.uri,
            ContentKind::Resource(resource) => &mut resource.uri,
            ContentKind::Text(_) | ContentKind::Image(_) | ContentKind::Audio(_) => continue,
        };
        let parsed = ResourceUri::parse(uri).map_err(|error| {
            Fault::invalid_params(format!("with these arguments, the uri of messages[{index}] {error}"))
        })?;
        if parsed.as_str() != uri {
            *uri = parsed.to_string();
        }
    }
    Ok(())
}

impl From<RenderError> for Fault {
    fn from(error: RenderError) -> Self {
        match error {
            RenderError::Busy | RenderError::Late => Self::BUSY,
            RenderError::Failed(detail) => Self::Internal(detail),
            refused => Self::invalid_params(refused.to_string()),
        }
    }
}
