//! The handlers of definitions, written once for every kind.

use std::borrow::Borrow;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::response::{IntoResponse, Response};
use http::header::ETAG;
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};

use super::authority::Authority;
use super::definition::form::Form;
use super::extract::json;
use super::page::{Items, PageParams};
use super::services::Admin;
use crate::http::precondition::etag;
use crate::http::problem::AdminFault;
use crate::model::agent::Agent;
use crate::model::fault::Fault;
use crate::model::precondition::Precondition;

/// The `ETag` of an answer.
type Tag = [(HeaderName, HeaderValue); 1];

/// A call about the catalog of an agent, as the first parameters of its handler.
pub(super) struct CatalogCall {
    /// The API.
    pub(super) app: Arc<Admin>,
    /// Who calls.
    pub(super) authority: Authority,
    /// The id of the agent.
    slug: String,
}

impl FromRequestParts<Arc<Admin>> for CatalogCall {
    type Rejection = AdminFault;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Admin>) -> Result<Self, AdminFault> {
        let authority = Authority::from_request_parts(parts, app).await?;
        // A parameter that is not UTF-8 names nothing.
        let params = RawPathParams::from_request_parts(parts, app).await.ok();
        let agent = params.iter().flatten().find(|(name, _)| *name == "agent");
        let slug = agent.map(|(_, slug)| slug.to_owned()).ok_or(Fault::NotFound("path"))?;
        Ok(Self { app: Arc::clone(app), authority, slug })
    }
}

impl CatalogCall {
    /// The agent, if the caller may change its catalog.
    pub(super) async fn agent(&self) -> Result<Agent, Fault> {
        self.authority.catalog_of(&self.app.identity, &self.slug).await
    }

    /// Lists definitions, without their contents.
    pub(super) async fn list<K: Form>(&self, params: &PageParams) -> Result<Json<Items<K::View>>, Fault> {
        Ok(Json(self.page::<K>(&self.agent().await?, params).await?))
    }

    /// Reads a definition, in the format of `PUT`.
    pub(super) async fn read<K: Form>(&self, key: &str) -> Result<(Tag, Json<K::View>), Fault> {
        let (tag, view) = self.one::<K>(&self.agent().await?, key).await?;
        Ok((tag, Json(view)))
    }

    /// Reads the definition of the key, if there is one, otherwise lists definitions.
    pub(super) async fn list_or_read<K: Form>(
        &self,
        key: Option<String>,
        params: PageParams,
    ) -> Result<Response, Fault> {
        let agent = self.agent().await?;
        let Some(key) = key else {
            let page = self.page::<K>(&agent, &params).await?;
            return Ok(Json(page).into_response());
        };
        if params != PageParams::default() {
            let both = format!("query: {} cannot be combined with limit or cursor", K::KEY);
            return Err(Fault::invalid_params(both));
        }
        let (tag, view) = self.one::<K>(&agent, &key).await?;
        Ok((tag, Json(view)).into_response())
    }

    async fn page<K: Form>(&self, agent: &Agent, params: &PageParams) -> Result<Items<K::View>, Fault> {
        let page = params.verify(&self.app.cursor_signer, K::LIST, agent.uid.0)?;
        let found = self.app.catalog.definitions::<K>(agent, &page.after, page.limit).await?;
        let position = |definition: &K| -> String {
            let key: &str = definition.key().borrow();
            key.to_owned()
        };
        Ok(page.items(found, position, K::listed))
    }

    async fn one<K: Form>(&self, agent: &Agent, key: &str) -> Result<(Tag, K::View), Fault> {
        let full = self.app.catalog.definition::<K>(agent, &K::parse_key(key)?).await?;
        let tag = etag(full.definition.revision());
        Ok(([(ETAG, tag)], full.definition.whole(&full.bytes)?))
    }

    /// Adds or replaces a definition.
    pub(super) async fn put<K: Form>(
        &self,
        key: &str,
        condition: Precondition,
        request: Request,
    ) -> Result<(StatusCode, Tag), Fault> {
        let agent = self.agent().await?;
        let key = K::parse_key(key)?;
        let limits = self.app.content_limits;
        let input: K::Input = json(request, K::most_bytes(limits)).await?;
        let new = K::validate(input, key, limits)?;
        // With the permit for queries, which the write has not.
        self.app.catalog.check_condition::<K>(&agent, &new, &condition).await?;
        let (status, audited) = self.authority.answers_put();
        let written = self.app.catalog.put::<K>(&agent, new, condition, audited).await?;
        Ok((status(written.created), [(ETAG, etag(written.revision))]))
    }

    /// Removes a definition.
    pub(super) async fn remove<K: Form>(
        &self,
        key: &str,
        condition: Precondition,
    ) -> Result<(StatusCode, Tag), Fault> {
        let agent = self.agent().await?;
        let (status, audited) = self.authority.answers(StatusCode::NO_CONTENT);
        let key = K::parse_key(key)?;
        let revision = self.app.catalog.delete::<K>(&agent, key, condition, audited).await?;
        Ok((status, [(ETAG, etag(revision))]))
    }
}
