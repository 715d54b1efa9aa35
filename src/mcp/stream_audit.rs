//! The audit row of a stream's end.

use std::sync::Arc;

use tokio::time::Instant;

use super::request::McpRequest;
use super::streams::StreamEnd;
use crate::http::context::{ChargedQuotas, micros};
use crate::http::recorder::RequestRecorder;
use crate::model::audit::event::{Event, Outcome};

/// Records a stream's end when it is dropped.
#[derive(Debug)]
pub(super) struct StreamAuditGuard {
    recorder: Arc<RequestRecorder>,
    quotas: Option<ChargedQuotas>,
    event: Option<Event>,
    opened: Instant,
    bytes: u64,
}

impl StreamAuditGuard {
    /// The guard of the stream that a request opens.
    pub(super) fn new(recorder: &Arc<RequestRecorder>, request: &McpRequest<'_>) -> Self {
        let context = &request.context;
        let event = Event { subject: None, bytes_in: 0, ..context.event.clone() };
        Self {
            recorder: Arc::clone(recorder),
            quotas: context.quotas.clone(),
            event: Some(event),
            opened: Instant::now(),
            bytes: 0,
        }
    }

    /// Counts bytes that are sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Records why the gateway ends the stream. Without it the client has disconnected.
    pub(super) fn ended(&mut self, end: StreamEnd) {
        if let Some(event) = &mut self.event {
            event.outcome = end.outcome();
        }
    }
}

impl Drop for StreamAuditGuard {
    fn drop(&mut self) {
        let Some(mut event) = self.event.take() else { return };
        if event.outcome == Outcome::Ok {
            event.outcome = Outcome::EndedDisconnected;
        }
        event.micros = micros(self.opened.elapsed());
        event.bytes_out = Some(self.bytes);
        self.recorder.record_stream_end(event, self.quotas.as_ref());
    }
}
