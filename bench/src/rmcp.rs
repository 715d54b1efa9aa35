//! `rmcp`: the official Rust SDK serving the same resources, in its cheapest configuration.
//!
//! Without sessions and with plain JSON answers it serves both eras from one endpoint; with sessions every
//! legacy answer would be an event stream.

use std::sync::Arc;

use axum::Router;
use rmcp::ServerHandler;
use rmcp::model::{
    CacheScope, ErrorData, Implementation, ListResourcesResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use crate::cases;
use crate::error::Error;
use crate::fixture::{self, LISTER, READER};
use crate::limit::listen;

/// Serves the agents of the fixture, each at its own path, for `seconds` at the most.
pub(crate) async fn serve(port: u16, seconds: u64) -> Result<(), Error> {
    let router = Router::new()
        .route_service(&cases::path(READER), service(READER))
        .route_service(&cases::path(LISTER), service(LISTER));
    listen(port, router, seconds).await
}

fn service(agent: &str) -> StreamableHttpService<Agent, NeverSessionManager> {
    let agent = Agent::new(agent);
    let config =
        StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
    StreamableHttpService::new(move || Ok(agent.clone()), Arc::default(), config)
}

/// The definitions are copied into every list because the SDK's result owns them.
#[derive(Clone)]
struct Agent {
    definitions: Arc<[Resource]>,
    contents: Arc<[ResourceContents]>,
}

impl Agent {
    fn new(agent: &str) -> Self {
        let resources = fixture::resources_of(agent);
        Self {
            definitions: resources.iter().map(definition).collect(),
            contents: resources.into_iter().map(contents).collect(),
        }
    }

    fn find(&self, uri: &str) -> Option<&ResourceContents> {
        self.definitions.iter().position(|resource| resource.uri == uri).map(|index| &self.contents[index])
    }
}

fn definition(resource: &fixture::Resource) -> Resource {
    Resource::new(resource.uri.as_str(), resource.name.as_str())
        .with_description(resource.description.as_str())
        .with_mime_type(resource.mime_type)
        .with_size(resource.text.len() as u64)
}

fn contents(resource: fixture::Resource) -> ResourceContents {
    ResourceContents::text(resource.text, resource.uri).with_mime_type(resource.mime_type)
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version() == Some(ProtocolVersion::V_2026_07_28)
}

impl ServerHandler for Agent {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_resources().build())
            .with_server_info(Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")))
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let list = ListResourcesResult::with_all_items(self.definitions.to_vec());
        Ok(if is_modern(&context) { list.with_ttl_ms(0).with_cache_scope(CacheScope::Private) } else { list })
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents =
            self.find(&request.uri).ok_or_else(|| ErrorData::resource_not_found("no such resource", None))?;
        let read = ReadResourceResult::new(vec![contents.clone()]);
        let read = if is_modern(&context) {
            read.with_ttl_ms(0).with_cache_scope(CacheScope::Private)
        } else {
            read
        };
        Ok(read.into())
    }
}
