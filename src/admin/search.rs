//! `/agents/{agent}/search`: finds definitions by the words that they contain.

use axum::Json;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::definitions::CatalogCall;
use super::extract::Params;
use super::openapi::Problems;
use super::services::Answer;
use crate::catalog::search::{DEFAULT_RESULTS, Found, MAX_RESULTS, SearchRequest, SearchedKind};
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::label::CallerLabels;

/// What to search for.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchParams {
    /// The words, all of which must occur in a definition or its text; the last one may be the beginning of a word.
    #[param(min_length = 1, max_length = 256, example = "invoice refu")]
    q: String,
    /// Finds definitions of this kind only.
    #[param(inline)]
    kind: Option<SearchedKind>,
    /// The maximum number of results.
    #[param(minimum = 1, maximum = 500, default = 20)]
    limit: Option<usize>,
}

/// The results of a search, the best first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SearchResults {
    items: Vec<SearchResult>,
}

/// A definition that was found.
#[derive(Debug, Serialize, ToSchema)]
struct SearchResult {
    /// Its kind.
    kind: SearchedKind,
    /// The URI of a resource or a SKILL.md, the URI template of a template, `prompt:` and the name of a prompt.
    id: String,
    /// Its name.
    name: String,
    /// Its title; its name if it has none.
    title: String,
    /// A part of its text or its description around the words that were found.
    text: String,
}

impl From<Found> for SearchResult {
    fn from(found: Found) -> Self {
        let Found { kind, id, name, title, text } = found;
        Self { kind, id, name, title, text }
    }
}

/// Searches the resources, templates, prompts and skills of an agent: their names, titles, descriptions, URIs and texts.
/// Labels hide nothing here. Answers `503` with `Retry-After` while the index of the agent is built.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/search",
    operation_id = "searchAgent",
    tag = "Agents",
    params(("agent" = String, Path, description = "The id of the agent"), SearchParams),
    responses((status = 200, description = "The definitions, the best first", body = SearchResults), Problems)
)]
pub(super) async fn search(
    call: CatalogCall,
    Params(params): Params<SearchParams>,
) -> Answer<impl IntoResponse> {
    let agent = call.agent().await?;
    let limit = params.limit.unwrap_or(DEFAULT_RESULTS);
    if !(1..=MAX_RESULTS).contains(&limit) {
        return Err(Fault::invalid_params(format!("limit must be 1 to {MAX_RESULTS}")).into());
    }
    let request = SearchRequest::parse("q", &params.q)?.of_kind(params.kind).limited(limit);
    // The search waits for its index, and loads by permits of its own.
    call.authority.call().intake.release_query();
    let (payer, everything) = (Payer::Tenant(agent.tenant), CallerLabels::Everything);
    let found = call.app.catalog.search(payer, (&agent).into(), everything, request).await?;
    Ok(Json(SearchResults { items: found.into_iter().map(SearchResult::from).collect() }))
}
