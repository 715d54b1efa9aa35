//! A manifest: an agent's whole catalog, as sent and returned.

use serde::{Deserialize, Serialize};
use uri_template::UriTemplate;
use utoipa::ToSchema;

use super::{PromptInput, PromptView, ResourceInput, ResourceView, TemplateInput, TemplateView};
use crate::catalog::manifest::{FullManifest, ManifestEntry, NewManifest};
use crate::model::fault::Fault;
use crate::model::ids::Slug;
use crate::model::json::Object;
use crate::model::prompt::{NewPrompt, PromptName};
use crate::model::resource::{ContentHash, NewResource};
use crate::model::template::NewTemplate;
use crate::model::uri::ResourceUri;

/// The version of the format.
const VERSION: &str = "waggle/v1";

/// A manifest as sent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewManifest)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ManifestInput {
    /// `waggle/v1`.
    api_version: String,
    /// The id of the agent. Must equal the agent of the path if both are set.
    pub agent: Option<String>,
    #[serde(default)]
    #[schema(value_type = Vec<ResourceInput>)]
    resources: Vec<Object<ResourceInput>>,
    #[serde(default)]
    #[schema(value_type = Vec<TemplateInput>)]
    templates: Vec<Object<TemplateInput>>,
    #[serde(default)]
    #[schema(value_type = Vec<PromptInput>)]
    prompts: Vec<Object<PromptInput>>,
}

impl ManifestInput {
    /// Validates everything about each definition that the types do not guarantee, except that templates and messages
    /// compile.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], with the path of the member.
    pub fn check(self, content_bytes: usize) -> Result<NewManifest, Fault> {
        if self.api_version != VERSION {
            return Err(Fault::invalid_params(format!("apiVersion must be {VERSION}")));
        }
        let resource = |input| resource(input, content_bytes);
        let prompt = |input| prompt(input, content_bytes);
        Ok(NewManifest {
            resources: checked("resources", self.resources, |of| of.uri.as_deref(), resource)?,
            templates: checked("templates", self.templates, |of| of.uri_template.as_deref(), template)?,
            prompts: checked("prompts", self.prompts, |of| of.name.as_deref(), prompt)?,
        })
    }
}

fn checked<I, N>(
    list: &'static str,
    inputs: Vec<Object<I>>,
    name: impl Fn(&I) -> Option<&str>,
    check: impl Fn(I) -> Result<N, Fault>,
) -> Result<Vec<N>, Fault> {
    let checked = inputs.into_iter().enumerate().map(|(index, Object(input))| {
        let name = name(&input).unwrap_or_default().to_owned();
        let wrong = |fault: Fault| match fault {
            Fault::PayloadTooLarge(most) => {
                Fault::invalid_params(format!("its contents exceed {most} bytes"))
            }
            other => other,
        };
        check(input).map_err(|fault| wrong(fault).within(ManifestEntry { list, index, name: &name }))
    });
    checked.collect()
}

fn resource(input: ResourceInput, content_bytes: usize) -> Result<NewResource, Fault> {
    let uri = input.uri.as_deref().ok_or(Fault::InvalidParams("uri is missing".into()))?;
    let uri = ResourceUri::parse(uri).map_err(|error| Fault::invalid_params(format!("uri {error}")))?;
    input.check(uri, content_bytes)
}

fn template(input: TemplateInput) -> Result<NewTemplate, Fault> {
    let text = input.uri_template.as_deref().ok_or(Fault::InvalidParams("uriTemplate is missing".into()))?;
    let text = UriTemplate::parse(text);
    let text = text.map_err(|error| Fault::invalid_params(format!("uriTemplate {error}")))?;
    input.check(text)
}

fn prompt(input: PromptInput, content_bytes: usize) -> Result<NewPrompt, Fault> {
    let name = input.name.as_deref().ok_or(Fault::InvalidParams("name is missing".into()))?;
    let name = PromptName::parse(name).map_err(|error| Fault::invalid_params(format!("name {error}")))?;
    input.check(name, content_bytes)
}

/// A manifest as returned, in the format of `PUT`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Manifest)]
#[serde(rename_all = "camelCase")]
pub struct ManifestView {
    api_version: &'static str,
    #[schema(value_type = String)]
    agent: Slug,
    resources: Vec<ResourceView>,
    templates: Vec<TemplateView>,
    prompts: Vec<PromptView>,
}

impl ManifestView {
    /// With everything, in the format of `PUT`.
    ///
    /// # Errors
    /// [`Fault::Internal`] if a stored definition cannot be parsed.
    pub fn whole(agent: Slug, manifest: FullManifest) -> Result<Self, Fault> {
        let FullManifest { resources, templates, prompts, bytes, .. } = manifest;
        let behind = |hash: ContentHash| bytes.get(&hash).map_or(&[][..], |bytes| &bytes[..]);
        let prompts = prompts.into_iter().map(|prompt| {
            let messages = behind(prompt.messages);
            PromptView::whole(prompt, messages)
        });
        let prompts = prompts.collect::<Result<_, _>>()?;
        let templates = templates.into_iter().map(|template| {
            let body = behind(template.body);
            TemplateView::whole(template, body)
        });
        let templates = templates.collect();
        let resources = resources.into_iter().map(|resource| ResourceView::whole(resource, &bytes)).collect();
        Ok(Self { api_version: VERSION, agent, resources, templates, prompts })
    }
}
