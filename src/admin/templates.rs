//! Resource templates: their JSON, and `/agents/{agent}/templates`.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use uri_template::UriTemplate;
use utoipa::ToSchema;

use super::definition::checks::{self, DefinitionInput, Description, MAX_RAW, MimeText, Name, check_text};
use super::definition::completions::CompletionsInput;
use super::definition::form::{ContentLimits, Form, content};
use super::definition::routes::routes_by_query;
use super::definitions::CatalogCall;
use super::extract::{Condition, Params, present};
use super::malformed;
use super::openapi::{DeleteAnswers, Preconditions, Problems, PutAnswers};
use super::page::{Items, PageParams};
use super::services::Answer;
use crate::model::completion::{CompletionValues, Completions};
use crate::model::content::{ContentHash, NewContent};
use crate::model::fault::{Fault, shortened};
use crate::model::json;
use crate::model::label::{Label, Labels};
use crate::model::place::SourceText;
use crate::model::resource::Definition;
use crate::model::template::{self, NewTemplate, ResourceTemplate};

/// The body limit of a template: every member at its maximum length, every character escaped.
const MAX_BYTES: usize = 1024 * 1024;

/// A resource template as sent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewTemplate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub(crate) struct TemplateInput {
    /// Must equal the template of the query if both are set.
    uri_template: Option<String>,
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
    /// Only callers who have one of them see the template; none: every caller does.
    #[schema(value_type = Option<Vec<Label>>, max_items = 16)]
    labels: Option<Labels>,
    /// Completion values of variables, or where they come from, by their names.
    #[schema(value_type = Option<HashMap<String, CompletionValues>>)]
    completions: Option<Box<RawValue>>,
    /// The body, which is rendered with the variables. Either it or `source` is required.
    #[serde(default, deserialize_with = "present")]
    template: Option<String>,
    /// Where the content is, in place of `template`.
    #[schema(value_type = Option<SourceText>)]
    source: Option<Box<RawValue>>,
}

/// Either `template` or `source` is required: the error of neither is that of a missing `template`.
impl<'de> Deserialize<'de> for TemplateInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let input = Self::deserialize(deserializer)?;
        if input.template.is_none() && input.source.is_none() {
            return Err(D::Error::missing_field("template"));
        }
        Ok(input)
    }
}

fn checked_completions(
    sent: Option<Box<RawValue>>,
    uri_template: &UriTemplate,
) -> Result<Completions, Fault> {
    let Some(raw) = sent.filter(|raw| raw.get() != "null") else { return Ok(Completions::new()) };
    let value =
        json::check(&raw, MAX_RAW).map_err(|error| Fault::invalid_params(format!("completions {error}")))?;
    let read = serde_path_to_error::deserialize::<_, BTreeMap<String, CompletionsInput>>(value);
    let read = read.map_err(|found| {
        if found.path().to_string().contains(".source") {
            malformed::within("completions", found)
        } else {
            Fault::invalid_params("completions must be an object of lists of text, by the names of variables")
        }
    })?;
    let known = || uri_template.variables();
    if let Some(foreign) = read.keys().find(|name| !known().any(|known| known == **name)) {
        let name = shortened(foreign);
        return Err(Fault::invalid_params(format!("completions: {name} is not a variable of the template")));
    }
    let checked = read.into_iter().map(|(name, input)| {
        let values = input.check().and_then(|values| {
            values.check(known(), "a variable of the template")?;
            Ok(values)
        });
        let values = values.map_err(|fault| fault.within(format_args!("completions.{name}")))?;
        Ok((name, values))
    });
    checked.collect()
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
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<Label>, required = false)]
    labels: Labels,
    #[serde(skip_serializing_if = "Completions::is_empty")]
    #[schema(value_type = HashMap<String, CompletionValues>, required = false)]
    completions: Completions,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourceText>,
}

impl Form for ResourceTemplate {
    type Input = TemplateInput;
    type View = TemplateView;
    type Exported = TemplateView;

    fn most_bytes(_: ContentLimits) -> usize {
        MAX_BYTES
    }

    fn sent_key(input: &TemplateInput) -> Option<&str> {
        input.uri_template.as_deref()
    }

    fn validate(
        input: TemplateInput,
        uri_template: UriTemplate,
        _: ContentLimits,
    ) -> Result<NewTemplate, Fault> {
        if input.uri_template.is_some_and(|own| own != uri_template.as_str()) {
            return Err(Fault::invalid_params("uriTemplate differs from the one in the query"));
        }
        let is_of_skills = |(scheme, _): (&str, &str)| scheme.eq_ignore_ascii_case(skill::SCHEME);
        if uri_template.as_str().split_once(':').is_some_and(is_of_skills) {
            return Err(Fault::invalid_params("uriTemplate has the scheme skill, which only skills have"));
        }
        let definition = DefinitionInput {
            name: input.name,
            title: input.title,
            description: input.description,
            mime_type: input.mime_type,
            annotations: input.annotations,
            icons: input.icons,
            meta: input.meta,
        };
        let definition = definition.check()?;
        let completions = checked_completions(input.completions, &uri_template)?;
        let source = checks::source(input.source)?;
        let body = match (input.template, &source) {
            (Some(_), Some(_)) => {
                return Err(Fault::invalid_params("template and source exclude each other"));
            }
            (None, Some(source)) => {
                source.check_variables(&uri_template)?;
                template::placeholder()
            }
            (body, None) => {
                let body = body.unwrap_or_default();
                check_text("template", &body)?;
                NewContent::new(Bytes::from(body))
            }
        };
        let labels = input.labels.unwrap_or_default();
        Ok(NewTemplate { uri_template, definition, labels, completions, body, source })
    }

    fn listed(self) -> TemplateView {
        let Self { uri_template, definition, labels, completions, source, .. } = self;
        let source = source.map(|source| source.text().clone());
        TemplateView { uri_template, definition, labels, completions, template: None, source }
    }

    fn whole(self, bytes: &BTreeMap<ContentHash, Bytes>) -> Result<TemplateView, Fault> {
        let body = || String::from_utf8_lossy(content(bytes, self.body)).into_owned();
        let template = self.source.is_none().then(body);
        Ok(TemplateView { template, ..self.listed() })
    }
}

routes_by_query! {
    ResourceTemplate(TemplateInput, TemplateView), "/admin/v1/agents/{agent}/templates", "Templates",
    TemplateParam.uri_template(
        /// The URI template.
        key,
        /// One template with its body.
        one
    ),
    /// Lists resource templates, or reads one.
    ///
    /// With `uriTemplate` one template with its body, without it a page of definitions.
    get "readTemplates"(
        "Without `uriTemplate` a page of definitions; with it that template with its body, in the format of `PUT`",
        "With `uriTemplate`, the revision that last changed it"
    ),
    /// Adds or replaces a resource template.
    put "putTemplate",
    /// Removes a resource template.
    delete "deleteTemplate",
}
