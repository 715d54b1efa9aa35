//! Requests for the documents of the gateway itself: metrics and the metadata of protected resources; and unknown paths.

use http::Response;
use hyper::body::Incoming;

use super::surfaces::SurfaceRequest;
use crate::http::body::Body;
use crate::http::origin::{FOREIGN_HOST, RequestSource};
use crate::model::fault::Fault;
use crate::server::metrics::Scraper;
use crate::server::routes::Document;

const NO_PATH: Fault = Fault::NotFound("path");

/// A request for a document, and its body.
pub(super) struct DocumentRequest {
    document: Document,
    body: Incoming,
    foreign_host: bool,
    refused: Option<Fault>,
}

impl DocumentRequest {
    pub(super) fn new(document: Document, body: Incoming) -> Self {
        Self { document, body, foreign_host: false, refused: None }
    }

    /// A request for a foreign `Host` is admitted only where its credential is read.
    pub(super) fn admit(&mut self, source: Result<&RequestSource, &Fault>) {
        self.foreign_host = source.is_ok_and(|source| source.foreign_host);
        let refuses_host = self.foreign_host && self.document != Document::Metrics;
        self.refused = source.err().cloned().or_else(|| refuses_host.then_some(FOREIGN_HOST));
    }

    pub(super) fn answer(&self, request: SurfaceRequest<'_>) -> Response<Body> {
        let answered = match (&self.refused, self.document) {
            (Some(fault), _) => Err(fault.clone()),
            (None, Document::Metrics) => self.scrape(request),
            (None, Document::WellKnown) => describe(request),
            (None, Document::Unknown) => Err(NO_PATH),
        };
        answered.unwrap_or_else(|fault| request.problem(&fault))
    }

    pub(super) async fn discard_body(&mut self, request: SurfaceRequest<'_>) {
        let SurfaceRequest { surfaces, parts, client, .. } = request;
        surfaces.refusals.discard(client, &parts.headers, &mut self.body).await;
    }
}

impl DocumentRequest {
    /// The metrics.
    fn scrape(&self, request: SurfaceRequest<'_>) -> Result<Response<Body>, Fault> {
        let SurfaceRequest { surfaces, parts, peer, client, .. } = request;
        let scraper = Scraper {
            headers: &parts.headers,
            peer,
            client,
            foreign_host: self.foreign_host,
            has_literal_or_allowed_host: surfaces
                .origins
                .has_literal_or_allowed_host(&parts.uri, &parts.headers),
        };
        surfaces.metrics.answer(&surfaces.endpoint, &parts.method, &scraper)
    }
}

/// The metadata of a protected resource (RFC 9728).
fn describe(request: SurfaceRequest<'_>) -> Result<Response<Body>, Fault> {
    let SurfaceRequest { surfaces, parts, .. } = request;
    let metadata = surfaces.metadata.load();
    let metadata = metadata.as_deref().ok_or(NO_PATH)?;
    let what = metadata.find(parts.uri.path()).ok_or(NO_PATH)?;
    Ok(metadata.answer(&parts.method, what))
}
