//! Runs a handler with the deadline of requests; a panic in it ends only its own request.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;

use crate::http::refusals::within;
use crate::model::fault::Fault;

/// Why a handler did not complete.
pub(super) enum Interrupted {
    Panic,
    Deadline,
}

impl Interrupted {
    /// The fault that the request is answered with.
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::Panic => Fault::Internal("a handler panicked".to_owned()),
            Self::Deadline => Fault::BUSY,
        }
    }
}

/// Runs a handler until it completes, panics or exceeds the deadline.
pub(super) async fn guard<T>(
    deadline: Duration,
    answering: impl Future<Output = T>,
) -> Result<T, Interrupted> {
    let answering = pin!(AssertUnwindSafe(answering).catch_unwind());
    match within(deadline, answering).await {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(_)) => Err(Interrupted::Panic),
        None => Err(Interrupted::Deadline),
    }
}
