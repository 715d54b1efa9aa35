//! The official SDK with subscribed sessions, which it notifies of a change one after another.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use rmcp::ServerHandler;
use rmcp::model::{
    ErrorData, Implementation, ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig,
    SubscribeRequestParams,
};
use rmcp::service::{Peer, RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use crate::cases;
use crate::error::Error;
use crate::fixture::{DOCUMENT_URI, WATCHED};
use crate::limit::listen;
use crate::trigger::CHANGE_PATH;

/// Serves streams and their changes for at most `seconds`.
pub(crate) async fn serve(port: u16, seconds: u64) -> Result<(), Error> {
    let agent = Agent::default();
    let made = agent.clone();
    let config = StreamableHttpServerConfig::default();
    let service: StreamableHttpService<Agent, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(made.clone()), Arc::default(), config);
    let publish = post(move || async move { agent.publish().await });
    listen(
        port,
        Router::new().route_service(&cases::path(WATCHED), service).route(CHANGE_PATH, publish),
        seconds,
    )
    .await
}

/// The sessions that subscribed.
#[derive(Clone, Default)]
struct Agent {
    subscribers: Arc<Mutex<Vec<Peer<RoleServer>>>>,
}

impl Agent {
    /// Notifies the sessions that are still connected.
    async fn publish(&self) -> StatusCode {
        let subscribers = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for subscriber in subscribers.iter().filter(|peer| !peer.is_transport_closed()) {
            let param = ResourceUpdatedNotificationParam::new(DOCUMENT_URI);
            // Fails only if the session has just been closed.
            let _gone = subscriber.notify_resource_updated(param).await;
        }
        StatusCode::ACCEPTED
    }
}

impl ServerHandler for Agent {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_resources().enable_resources_subscribe().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")))
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(context.peer);
        Ok(())
    }
}
