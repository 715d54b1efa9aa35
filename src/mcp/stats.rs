//! The counters of the endpoints, and the label of a body in metrics.

use super::wire::{Incoming, Message, Rejected};
use crate::http::meter::MethodLabel;

pub use super::results::ResultStats;
pub use super::streams::StreamStats;

/// The sizes and counters of the endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointStats {
    /// Of encoded results.
    pub results: ResultStats,
    /// Of the streams of both eras.
    pub streams: [StreamStats; 2],
}

/// The label of a body in metrics.
pub(super) fn label_of(incoming: &Result<Incoming<'_>, Rejected<'_>>) -> MethodLabel {
    match incoming {
        Ok(Incoming::Message(Message::Request(request))) => request.method.known().into(),
        Ok(Incoming::Batch(_)) => MethodLabel::Batch,
        Ok(Incoming::Message(_)) | Err(_) => MethodLabel::Other,
    }
}
