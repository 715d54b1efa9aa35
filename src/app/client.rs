//! HTTP clients of a gateway, and of what it depends on.

use std::error::Error;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};

/// A client of one URL, which follows no redirect and has a deadline for a whole request. A local server is trusted with any
/// certificate, since none is valid for its address, and the requests have no secrets.
pub(crate) fn client(url: &str, deadline: Duration, local: bool) -> ClientBuilder {
    let builder = Client::builder().timeout(deadline).redirect(Policy::none());
    if local {
        builder.no_proxy().tls_danger_accept_invalid_certs(true).tls_certs_only([])
    } else if url.starts_with("http:") {
        // A minimal container image has no certificates, so searching for them would fail; plain HTTP needs none.
        builder.tls_certs_only([])
    } else {
        builder
    }
}

/// The innermost cause of an error, which has the reason.
pub(crate) fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause
}
