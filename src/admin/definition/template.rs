//! A resource template as sent to and returned by the administration API and in manifests.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uri_template::UriTemplate;
use utoipa::ToSchema;

use super::checks::{DefinitionInput, Description, MOST_RAW, MimeText, Name, check_text};
use crate::model::fault::{Fault, shortened};
use crate::model::json;
use crate::model::resource::{Definition, NewContent};
use crate::model::template::{Completions, NewTemplate, ResourceTemplate};

/// A resource template as sent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewTemplate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TemplateInput {
    /// Must equal the template of the query if both are set.
    pub(crate) uri_template: Option<String>,
    name: Name,
    title: Option<Name>,
    description: Option<Description>,
    mime_type: Option<MimeText>,
    /// `Annotations` of the MCP specification.
    #[schema(value_type = Option<Object>)]
    annotations: Option<Box<RawValue>>,
    /// A list of `Icon` of the MCP specification.
    #[schema(value_type = Option<Vec<Object>>)]
    icons: Option<Box<RawValue>>,
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Box<RawValue>>,
    /// Completion values of variables, by their names.
    #[schema(value_type = Option<HashMap<String, Vec<String>>>)]
    completions: Option<Box<RawValue>>,
    /// The body, which is rendered with the variables.
    template: String,
}

impl TemplateInput {
    /// Validates everything that the types do not guarantee, except that the body compiles.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`].
    pub(crate) fn check(self, uri_template: UriTemplate) -> Result<NewTemplate, Fault> {
        if self.uri_template.is_some_and(|own| own != uri_template.as_str()) {
            return Err(Fault::invalid_params("uriTemplate differs from the one in the query"));
        }
        let definition = DefinitionInput {
            name: self.name,
            title: self.title,
            description: self.description,
            mime_type: self.mime_type,
            annotations: self.annotations,
            icons: self.icons,
            meta: self.meta,
        };
        let definition = definition.check()?;
        let completions = checked_completions(self.completions, &uri_template)?;
        check_text("template", &self.template)?;
        let body = NewContent::new(Bytes::from(self.template));
        Ok(NewTemplate { uri_template, definition, completions, body })
    }
}

fn checked_completions(
    sent: Option<Box<RawValue>>,
    uri_template: &UriTemplate,
) -> Result<Completions, Fault> {
    let Some(raw) = sent.filter(|raw| raw.get() != "null") else { return Ok(Completions::new()) };
    let value =
        json::check(&raw, MOST_RAW).map_err(|error| Fault::invalid_params(format!("completions {error}")))?;
    let completions: Completions = serde_json::from_value(value).map_err(|_| {
        Fault::invalid_params("completions must be an object of lists of text, by the names of variables")
    })?;
    let foreign = completions.keys().find(|name| !uri_template.variables().any(|known| known == **name));
    match foreign {
        Some(name) => {
            let name = shortened(name);
            Err(Fault::invalid_params(format!("completions: {name} is not a variable of the template")))
        }
        None => Ok(completions),
    }
}

/// A resource template as returned: what was sent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Template)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemplateView {
    #[schema(value_type = String)]
    uri_template: UriTemplate,
    #[serde(flatten)]
    definition: Definition,
    #[serde(skip_serializing_if = "Completions::is_empty")]
    #[schema(value_type = HashMap<String, Vec<String>>, required = false)]
    completions: Completions,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<String>,
}

impl TemplateView {
    /// Without the body.
    pub(crate) fn listed(template: ResourceTemplate) -> Self {
        let ResourceTemplate { uri_template, definition, completions, .. } = template;
        Self { uri_template, definition, completions, template: None }
    }

    /// With everything, in the format of `PUT`.
    pub(crate) fn whole(template: ResourceTemplate, body: &[u8]) -> Self {
        Self { template: Some(String::from_utf8_lossy(body).into_owned()), ..Self::listed(template) }
    }
}
