//! Who a request to the admin surface comes from, as far as the border knows.

use std::sync::Arc;

use http::Extensions;

use super::intake::Intake;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;

/// Goes with a request as one of its extensions.
#[derive(Debug, Clone)]
pub struct ClientContext {
    /// The address of the client.
    pub client: ClientAddress,
    /// The request's `Host` is not allowed, so that it needs a credential that holds.
    pub foreign_host: bool,
    /// What the request holds of what requests share.
    pub intake: Arc<Intake>,
}

impl ClientContext {
    /// A client with this address.
    pub fn new(client: ClientAddress, intake: Intake) -> Self {
        Self { client, foreign_host: false, intake: Arc::new(intake) }
    }

    /// The one of a request.
    ///
    /// # Errors
    /// [`Fault::Internal`] where the border has put none there.
    pub fn of(extensions: &Extensions) -> Result<&Self, Fault> {
        extensions
            .get()
            .ok_or_else(|| Fault::Internal("a request came without its client context".to_owned()))
    }
}
