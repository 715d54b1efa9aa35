//! HTTP APIs: the content is the body of the answer to a GET.
//!
//! A path is appended to `baseUrl`, never resolved against it. Names are resolved by [`Egress`] when a connection is
//! opened, which goes to an address that was checked. Redirects are followed here, since each is checked, and since headers
//! go to `baseUrl`'s origin alone.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::dns::{Addrs, Name, Resolving};
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_TYPE, DATE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED, LOCATION, RETRY_AFTER,
};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Map, Value};
use time::format_description::well_known::Rfc2822;
use time::{OffsetDateTime, UtcOffset};
use url::{Host, Url};

pub(crate) use self::settings::SettingsForm;
use self::settings::{Settings, Target};
use crate::egress::Egress;
use crate::error::{FetchError, SettingsError};
use crate::kind::SourceContext;
use crate::location::{Location, Path};
use crate::source::{Bounds, Content, Fetched, Source, Validator};

mod body;
mod settings;

/// How many redirects of a fetch are followed.
const MAX_REDIRECTS: usize = 3;

/// The maximum length in bytes of an entity tag, a date or a MIME type that is kept.
const MAX_HEADER_BYTES: usize = 512;

/// What is not percent-encoded in a segment, a name or a value: the unreserved characters of RFC 3986. Of the others, `;`
/// begins a parameter that some servers strip before they resolve `..`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A connection to an HTTP API.
pub(crate) struct Http {
    client: Client,
    egress: Egress,
    base_url: Url,
    headers: HeaderMap,
    allow_redirects: Vec<Target>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

/// Builds the source from settings and secrets.
pub(crate) fn connect(
    settings: &Value,
    secrets: &Map<String, Value>,
    context: &SourceContext,
) -> Result<Http, SettingsError> {
    let Settings { base_url, headers, allow_networks, allow_redirects, tls } =
        settings::read(settings, secrets)?;
    let egress = Egress::new(allow_networks, Arc::clone(&context.resolver));
    let client = settings::client(tls, CheckedResolver(egress.clone()))?;
    Ok(Http { client, egress, base_url, headers, allow_redirects })
}

impl Http {
    async fn fetch(
        &self,
        location: &Location,
        known: Option<&Validator>,
        bounds: Bounds<'_>,
    ) -> Result<Fetched, FetchError> {
        let Location::Path { path, query, reference: None } = location else {
            return Err(FetchError::NotAllowed);
        };
        let conditions = known.map(conditions).unwrap_or_default();
        let answer = self.send(self.url(path, query), &conditions).await?;
        if answer.status() == StatusCode::NOT_MODIFIED && !conditions.is_empty() {
            return Ok(Fetched::Unchanged);
        }
        refuse_failure(&answer)?;
        let headers = answer.headers();
        let (mime_type, modified) = (text(headers, &CONTENT_TYPE), date(headers, &LAST_MODIFIED));
        let (mime_type, validator) = (mime_type.map(str::to_owned), validator(headers));
        let bytes = body::read(answer, bounds.bytes, bounds.pace).await?;
        let content = Content { name: None, mime_type, modified, bytes };
        Ok(Fetched::Contents { contents: vec![content], validator })
    }

    /// The URL of a place. The path of `baseUrl` stays as it is.
    fn url(&self, path: &Path, query: &[(String, String)]) -> Url {
        let mut url = self.base_url.clone();
        if !path.segments.is_empty() {
            let mut appended = url.path().trim_end_matches('/').to_owned();
            for segment in &path.segments {
                appended.push('/');
                appended.extend(utf8_percent_encode(segment.as_str(), ENCODED));
            }
            if path.is_directory {
                appended.push('/');
            }
            url.set_path(&appended);
        }
        if !query.is_empty() {
            let encode = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
            let pairs: Vec<_> =
                query.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
            url.set_query(Some(&pairs.join("&")));
        }
        url
    }

    /// The answer after redirects.
    async fn send(&self, mut url: Url, conditions: &HeaderMap) -> Result<Response, FetchError> {
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.get(&url, conditions).await?;
            if !is_redirect(answer.status()) {
                return Ok(answer);
            }
            let Some(location) = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok()) else {
                return Ok(answer);
            };
            url = self.redirected(&url, location)?;
        }
        Err(FetchError::Rejected)
    }

    /// Sends one request.
    async fn get(&self, url: &Url, conditions: &HeaderMap) -> Result<Response, FetchError> {
        // An address is connected to without the resolver.
        let allowed = match url.host() {
            Some(Host::Ipv4(address)) => self.egress.allows(address.into()),
            Some(Host::Ipv6(address)) => self.egress.allows(address.into()),
            Some(Host::Domain(_)) => true,
            None => false,
        };
        if !allowed {
            return Err(FetchError::NotAllowed);
        }
        let mut request = self.client.get(url.clone()).headers(conditions.clone());
        if url.origin() == self.base_url.origin() {
            request = request.headers(self.headers.clone());
        }
        let request = request.header(ACCEPT_ENCODING, body::ACCEPTED);
        request.send().await.map_err(|error| body::failure(&error))
    }

    /// Where a redirect leads, if it may be followed.
    fn redirected(&self, from: &Url, location: &str) -> Result<Url, FetchError> {
        let to = from.join(location).map_err(|_| FetchError::NotAllowed)?;
        let downgraded = from.scheme() == "https" && to.scheme() != "https";
        let with_user = !to.username().is_empty() || to.password().is_some();
        if !matches!(to.scheme(), "http" | "https") || downgraded || with_user {
            return Err(FetchError::NotAllowed);
        }
        let known =
            to.origin() == self.base_url.origin() || self.allow_redirects.iter().any(|at| at.has(&to));
        if known { Ok(to) } else { Err(FetchError::NotAllowed) }
    }
}

impl Source for Http {
    fn fetch<'a>(
        &'a self,
        location: &'a Location,
        known: Option<&'a Validator>,
        bounds: Bounds<'a>,
    ) -> BoxFuture<'a, Result<Fetched, FetchError>> {
        Box::pin(self.fetch(location, known, bounds))
    }
}

/// Gives the client addresses that were checked: it connects to these.
pub(crate) struct CheckedResolver(pub(crate) Egress);

impl reqwest::dns::Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let egress = self.0.clone();
        Box::pin(async move {
            // The client puts the port of the URL in place of 0.
            let addresses = egress.resolve(name.as_str(), 0).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn refuse_failure(answer: &Response) -> Result<(), FetchError> {
    match answer.status() {
        // Only a part, which was not asked for.
        StatusCode::PARTIAL_CONTENT => Err(FetchError::BadContent),
        status if status.is_success() => Ok(()),
        status => Err(FetchError::of_status(status.as_u16(), retry_after(answer.headers()))),
    }
}

/// The seconds of `Retry-After`. A date counts from that of the answer: the clocks may differ.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<u32> {
    if let Ok(seconds) = text(headers, &RETRY_AFTER)?.parse() {
        return Some(seconds);
    }
    let seconds = (date(headers, &RETRY_AFTER)? - date(headers, &DATE)?).whole_seconds();
    Some(u32::try_from(seconds).unwrap_or(0))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    (!text.is_empty() && text.len() <= MAX_HEADER_BYTES).then_some(text)
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<OffsetDateTime> {
    // In UTC, a time of another zone may be in the year 10000, which has no representation.
    OffsetDateTime::parse(text(headers, name)?, &Rfc2822).ok()?.checked_to_offset(UtcOffset::UTC)
}

/// The entity tag and the date of an answer, a line each.
fn validator(headers: &HeaderMap) -> Option<Validator> {
    let etag = text(headers, &ETAG);
    // Content that changed in the second of the answer may change again in it (RFC 9110, section 8.8.2.2).
    let settled = match (date(headers, &LAST_MODIFIED), date(headers, &DATE)) {
        (Some(modified), Some(answered)) => modified < answered,
        (modified, _) => modified.is_some(),
    };
    let modified = text(headers, &LAST_MODIFIED).filter(|_| settled);
    if etag.is_none() && modified.is_none() {
        return None;
    }
    Some(Validator(format!("{}\n{}", etag.unwrap_or_default(), modified.unwrap_or_default()).into_bytes()))
}

/// The headers that ask whether content differs from what a validator stands for.
fn conditions(known: &Validator) -> HeaderMap {
    let mut lines = known.0.split(|byte| *byte == b'\n');
    let mut headers = HeaderMap::new();
    for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE] {
        let value = lines.next().filter(|line| !line.is_empty());
        if let Some(value) = value.and_then(|line| HeaderValue::from_bytes(line).ok()) {
            headers.insert(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests;
