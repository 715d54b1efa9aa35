//! Resource templates: their JSON, and `/agents/{agent}/templates`.

use std::collections::BTreeMap;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uri_template::UriTemplate;
use utoipa::{IntoParams, ToSchema};

use super::definition::checks::{DefinitionInput, Description, MOST_RAW, MimeText, Name, check_text};
use super::definition::form::{Form, content};
use super::definitions::CatalogCall;
use super::extract::{Condition, Params};
use super::openapi::{DeleteAnswers, Preconditions, Problems, PutAnswers};
use super::page::{Items, PageParams};
use super::services::Answer;
use crate::model::content::{ContentHash, NewContent};
use crate::model::fault::{Fault, shortened};
use crate::model::json;
use crate::model::resource::Definition;
use crate::model::template::{Completions, NewTemplate, ResourceTemplate};

/// The body limit of a template: every member at its maximum length, every character escaped.
const MOST_BYTES: usize = 1024 * 1024;

/// A resource template as sent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewTemplate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
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
    /// Completion values of variables, by their names.
    #[schema(value_type = Option<HashMap<String, Vec<String>>>)]
    completions: Option<Box<RawValue>>,
    /// The body, which is rendered with the variables.
    template: String,
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

impl Form for ResourceTemplate {
    type Input = TemplateInput;
    type View = TemplateView;

    fn most_bytes(_: usize) -> usize {
        MOST_BYTES
    }

    fn sent_key(input: &TemplateInput) -> Option<&str> {
        input.uri_template.as_deref()
    }

    fn validate(input: TemplateInput, uri_template: UriTemplate, _: usize) -> Result<NewTemplate, Fault> {
        if input.uri_template.is_some_and(|own| own != uri_template.as_str()) {
            return Err(Fault::invalid_params("uriTemplate differs from the one in the query"));
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
        check_text("template", &input.template)?;
        let body = NewContent::new(Bytes::from(input.template));
        Ok(NewTemplate { uri_template, definition, completions, body })
    }

    fn listed(self) -> TemplateView {
        let Self { uri_template, definition, completions, .. } = self;
        TemplateView { uri_template, definition, completions, template: None }
    }

    fn whole(self, bytes: &BTreeMap<ContentHash, Bytes>) -> Result<TemplateView, Fault> {
        let body = String::from_utf8_lossy(content(bytes, self.body)).into_owned();
        Ok(TemplateView { template: Some(body), ..self.listed() })
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ListParams {
    /// One template with its body.
    uri_template: Option<String>,
    /// The maximum number of items on the page.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TemplateParam {
    /// The URI template.
    uri_template: String,
}

/// A page, or one definition.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes the answer of `CatalogCall::list_or_read`")]
enum ListedOrRead {
    Listed(Items<TemplateView>),
    Read(TemplateView),
}

/// Lists resource templates, or reads one.
///
/// With `uriTemplate` one template with its body, without it a page of definitions.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/templates",
    operation_id = "readTemplates",
    tag = "Templates",
    params(("agent" = String, Path, description = "The id of the agent"), ListParams),
    responses((status = 200, description = "Without `uriTemplate` a page of definitions; with it that template with its body, in the format of `PUT`", body = inline(ListedOrRead), headers(("ETag" = String, description = "With `uriTemplate`, the revision that last changed it"))), Problems)
)]
pub(super) async fn list_or_read(
    call: CatalogCall,
    Params(ListParams { uri_template, limit, cursor }): Params<ListParams>,
) -> Answer<Response> {
    Ok(call.list_or_read::<ResourceTemplate>(uri_template, PageParams::new(limit, cursor)).await?)
}

/// Adds or replaces a resource template.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/templates",
    operation_id = "putTemplate",
    tag = "Templates",
    params(("agent" = String, Path, description = "The id of the agent"), TemplateParam, Preconditions),
    request_body = TemplateInput,
    responses(PutAnswers)
)]
pub(super) async fn write(
    call: CatalogCall,
    Params(param): Params<TemplateParam>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    Ok(call.put::<ResourceTemplate>(&param.uri_template, condition, request).await?)
}

/// Removes a resource template.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}/templates",
    operation_id = "deleteTemplate",
    tag = "Templates",
    params(("agent" = String, Path, description = "The id of the agent"), TemplateParam, Preconditions),
    responses(DeleteAnswers)
)]
pub(super) async fn remove(
    call: CatalogCall,
    Params(param): Params<TemplateParam>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    Ok(call.remove::<ResourceTemplate>(&param.uri_template, condition).await?)
}
