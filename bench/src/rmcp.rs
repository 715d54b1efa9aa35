//! `rmcp`: the official Rust SDK serving the same resources, in its cheapest configuration.
//!
//! Without sessions and with plain JSON answers it serves both eras from one endpoint; with sessions every legacy
//! answer would be an event stream.

use std::sync::Arc;

use axum::Router;
use rmcp::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, Implementation, ListResourcesResult,
    PaginatedRequestParams, PromptMessage, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Resource, ResourceContents, Role, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use crate::cases;
use crate::error::Error;
use crate::fixture::{
    self, LABELLED_LISTER, LABELLED_READER, LISTER, MIME_TYPE, PROMPT, READ_TOOL, READER, RENDERER,
};
use crate::limit::listen;

/// Serves the agents of the fixture, each at its own path, for at most `seconds`.
pub(crate) async fn serve(port: u16, seconds: u64) -> Result<(), Error> {
    let router = Router::new()
        .route_service(&cases::path(READER), service(READER))
        .route_service(&cases::path(LISTER), service(LISTER))
        .route_service(&cases::path(LABELLED_READER), service(LABELLED_READER))
        .route_service(&cases::path(LABELLED_LISTER), service(LABELLED_LISTER))
        .route_service(&cases::path(RENDERER), service(RENDERER));
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

/// The resource of the template, generated in the cheapest way.
fn chapter(uri: &str) -> Option<ResourceContents> {
    let number = uri.strip_prefix("bench://chapters/")?.strip_suffix("/text")?;
    Some(ResourceContents::text(fixture::rendered(number), uri).with_mime_type(MIME_TYPE))
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version() == Some(ProtocolVersion::V_2026_07_28)
}

impl ServerHandler for Agent {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder().enable_resources().enable_prompts().enable_tools().build(),
        )
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
        let contents = self.find(&request.uri).cloned().or_else(|| chapter(&request.uri));
        let contents = contents.ok_or_else(|| ErrorData::resource_not_found("no such resource", None))?;
        let read = ReadResourceResult::new(vec![contents]);
        let read = if is_modern(&context) {
            read.with_ttl_ms(0).with_cache_scope(CacheScope::Private)
        } else {
            read
        };
        Ok(read.into())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let uri = request.arguments.as_ref().and_then(|arguments| arguments.get("uri")?.as_str());
        let uri = uri.filter(|_| request.name == READ_TOOL);
        let Some(ResourceContents::TextResourceContents { text, .. }) = uri.and_then(|uri| self.find(uri))
        else {
            return Err(ErrorData::invalid_params("no such tool", None));
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text.as_str())]).into())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let number = request.arguments.as_ref().and_then(|arguments| arguments.get("number")?.as_str());
        let number = number.filter(|_| request.name == PROMPT);
        let number = number.ok_or_else(|| ErrorData::invalid_params("no such prompt", None))?;
        let message = PromptMessage::new_text(Role::User, fixture::rendered(number));
        Ok(GetPromptResult::new(vec![message]).into())
    }
}
