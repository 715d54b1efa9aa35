//! The MCP endpoints of all agents at `/{agent_id}/mcp`: what they use, and their bounds. Requests are answered in
//! `post`.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::call_handler::CallHandler;
use super::request::RequestCosts;
pub use super::streams::StreamStats;
use super::streams::Streams;
use crate::cache::MemoryBudget;
use crate::catalog::Catalog;
use crate::feed::{Feed, FeedStats};
use crate::http::credential::Authenticator;
use crate::http::cursor::CursorSigner;
use crate::http::recorder::RequestRecorder;
use crate::sessions::Sessions;
use crate::telemetry::trace::Tracer;

/// The bounds of the endpoint.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// The maximum length of a body.
    pub body_bytes: usize,
    /// Bytes of the answers to a batch, beyond which its further calls are refused.
    pub batch_answer_bytes: usize,
    /// The maximum length of the text, or of the data, of one result of a tool.
    pub tool_result_bytes: usize,
    /// How long a modern client may cache a result.
    pub ttl: Duration,
    /// The interval of keep-alive comments and access checks of a stream.
    pub keep_alive: Duration,
    /// The maximum number of streams of one key, and of one address without a key.
    pub streams_per_key: usize,
    /// The maximum number of streams of the replica.
    pub streams: usize,
    /// The maximum number of URIs that one stream subscribes to.
    pub uris_per_stream: usize,
    /// The costs of requests, in rate limit units.
    pub costs: RequestCosts,
}

/// The MCP endpoints of all agents.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) call_handler: CallHandler,
    pub(super) cursor_signer: CursorSigner,
    pub(super) authenticator: Authenticator,
    pub(super) catalog: Arc<Catalog>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) feed: Arc<Feed>,
    pub(super) streams: Streams,
    pub(super) recorder: Arc<RequestRecorder>,
    pub(super) tracer: Option<Arc<Tracer>>,
    pub(super) options: EndpointOptions,
}

/// The services that the endpoints use.
#[derive(Debug)]
pub struct Services {
    /// Resources, resource templates and prompts.
    pub catalog: Arc<Catalog>,
    /// Sessions of the legacy era.
    pub sessions: Arc<Sessions>,
    /// The change feed.
    pub feed: Arc<Feed>,
    /// The audit log, quotas and usage, and the metrics of requests.
    pub recorder: Arc<RequestRecorder>,
    /// The memory of all caches.
    pub budget: Arc<MemoryBudget>,
    /// Traces, if they are exported.
    pub tracer: Option<Arc<Tracer>>,
}

impl Endpoint {
    /// Creates the endpoints. After cancelling `closing`, call [`Feed::recheck_streams`], which ends the streams.
    pub fn new(
        services: Services,
        (cursor_signer, authenticator): (CursorSigner, Authenticator),
        options: EndpointOptions,
        closing: CancellationToken,
    ) -> Self {
        let Services { catalog, sessions, feed, recorder, budget, tracer } = services;
        let streams = Streams::new(options.streams_per_key, options.streams, closing);
        let (tool_bytes, ttl) = (options.tool_result_bytes, options.ttl);
        let call_handler =
            CallHandler::new(Arc::clone(&catalog), cursor_signer.clone(), &budget, tool_bytes, ttl);
        Self {
            call_handler,
            cursor_signer,
            authenticator,
            catalog,
            sessions,
            feed,
            streams,
            recorder,
            tracer,
            options,
        }
    }

    /// The counters of the streams of both eras.
    pub fn stream_stats(&self) -> [StreamStats; 2] {
        self.streams.stats()
    }

    /// The counters of the change feed.
    pub fn feed_stats(&self) -> FeedStats {
        self.feed.stats()
    }
}
