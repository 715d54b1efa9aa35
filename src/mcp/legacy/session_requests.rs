//! `GET` and `DELETE`, which only a session has: its stream and its end.

use http::{Method, Response};
use hyper::body::Incoming as IncomingBody;

use crate::http::body::Body;
use crate::http::context::MethodLabel;
use crate::http::media_type;
use crate::mcp::endpoint::Endpoint;
use crate::mcp::reply::{fail, method_not_allowed, no_content, refuse};
use crate::mcp::request::McpRequest;
use crate::mcp::version::McpHeaders;
use crate::model::fault::Fault;
use crate::model::method::{CostClass, Era};

impl Endpoint {
    /// Answers `GET` and `DELETE`, which only a session has.
    pub(in crate::mcp) async fn without_message(
        &self,
        request: &mut McpRequest<'_>,
        body: &mut IncomingBody,
    ) -> Response<Body> {
        let parts = request.parts;
        let headers = std::mem::take(&mut request.headers);
        let era = if headers.are_modern() { Era::Modern } else { Era::Legacy };
        request.classified(MethodLabel::of_http(&parts.method), era);
        if request.context.foreign_host
            && let Err(fault) = self.admit(request).await
        {
            return refuse(request, &fault, body).await;
        }
        if era == Era::Modern || !headers.session_id.is_present() {
            return self.method_not_allowed(request, "POST");
        }
        let streams = parts.method == Method::GET && media_type::wants_events(&parts.headers);
        if !streams && parts.method != Method::DELETE {
            return self.method_not_allowed(request, "GET, POST, DELETE");
        }
        match self.use_session(request, &headers, streams).await {
            Ok(response) => response,
            Err(fault) => refuse(request, &fault, body).await,
        }
    }

    /// Refuses the HTTP method, which no credential is needed for: the address is charged.
    fn method_not_allowed(&self, request: &mut McpRequest<'_>, allowed: &'static str) -> Response<Body> {
        match self.authenticator.limits().charge_visit(request.client(), self.options.costs.other()) {
            Ok(status) => {
                request.rate_limit = status;
                method_not_allowed(allowed)
            }
            Err(fault) => fail(request, &fault),
        }
    }

    /// Opens the stream of a session, or ends the session.
    async fn use_session(
        &self,
        request: &mut McpRequest<'_>,
        headers: &McpHeaders<'_>,
        streams: bool,
    ) -> Result<Response<Body>, Fault> {
        let caller = self.admit(request).await?;
        let admission = self.authenticator.limits().admit(&(&*caller).into(), request.client())?;
        let _working = Self::begin_work(request, &admission)?;
        // Charged first: a session that does not exist is looked up in the database.
        let costs = &self.options.costs;
        request.rate_limit =
            admission.charge(if streams { costs.of_class(CostClass::Stream) } else { costs.other() })?;
        let session = self.session(&caller, headers, request).await?;
        if streams {
            self.open_session_stream(request, &caller, &session).await
        } else {
            self.sessions.end(&session).await.map(|()| no_content())
        }
    }
}
