//! The access log: one line for each request, as an event of the log or in the combined format of web servers.

use std::io::{self, Write};
use std::time::Instant;

use http::header::{REFERER, USER_AGENT};
use http::request::Parts;
use http::{HeaderName, Response};
use hyper::body::Body as _;
use time::OffsetDateTime;
use time::format_description::FormatItem;
use time::macros::format_description;

use crate::config::AccessLog;
use crate::http::body::Body;
use crate::model::audit::event::Outcome;
use crate::model::client_address::ClientAddress;

const TIME: &[FormatItem<'_>] =
    format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");

/// A request, as the access log shows it.
#[derive(Clone, Copy)]
pub(super) struct AccessEntry<'a> {
    /// When the request arrived.
    pub(super) began: Instant,
    /// The address of the client, behind trusted proxies.
    pub(super) client: ClientAddress,
    /// The request without its body.
    pub(super) parts: &'a Parts,
    /// How it ended, if it passed the checks of a surface.
    pub(super) outcome: Option<Outcome>,
    /// Its answer.
    pub(super) response: &'a Response<Body>,
}

impl AccessEntry<'_> {
    /// Writes the line.
    pub(super) fn write(self, format: AccessLog, now: impl FnOnce() -> OffsetDateTime) {
        match format {
            AccessLog::Off => {}
            AccessLog::Event => self.log(),
            // A line that cannot be written has no reader.
            AccessLog::Combined => _ = io::stdout().lock().write_all(self.combined(now()).as_bytes()),
        }
    }

    fn log(self) {
        let duration_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::info!(
            target: "waggle::access",
            status = self.response.status().as_u16(),
            duration_us,
            client = %self.client,
            outcome = self.outcome.map(Outcome::as_str),
            bytes = self.response.body().size_hint().exact(),
            "request answered"
        );
    }

    /// The line in the combined format. The body of a stream has no known length.
    fn combined(self, now: OffsetDateTime) -> String {
        let Self { client, parts, response, .. } = self;
        let at = now.format(TIME).unwrap_or_default();
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let bytes = response.body().size_hint().exact().map_or("-".to_owned(), |bytes| bytes.to_string());
        let header = |name: HeaderName| parts.headers.get(name).map_or(&b"-"[..], |value| value.as_bytes());
        format!(
            "{client} - - [{at}] \"{} {} {:?}\" {} {bytes} \"{}\" \"{}\"\n",
            parts.method,
            escaped(target.as_bytes()),
            parts.version,
            response.status().as_u16(),
            escaped(header(REFERER)),
            escaped(header(USER_AGENT)),
        )
    }
}

/// Text of a client, which cannot end its field or the line.
fn escaped(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
