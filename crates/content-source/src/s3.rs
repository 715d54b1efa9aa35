//! Objects of a bucket, by the protocol of S3.
//!
//! Requests are signed with the keys of the connection's secrets, or not at all: no other credentials are looked for, in the
//! environment or in a metadata service. The client connects to addresses that were checked, uses no proxy, and follows no
//! redirect.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures_util::TryStreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpErrorKind};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path as Key;
use object_store::{Attribute, ClientOptions, GetOptions, ObjectMeta, ObjectStore, RetryConfig};
use reqwest::redirect::Policy;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use url::Host;

use self::received::{Bounded, LIST_BYTES, Receive};
pub(crate) use self::settings::Settings;
use self::settings::{Secrets, check_bucket, check_endpoint, check_prefix};
use crate::egress::Egress;
use crate::error::{FetchError, SettingsError};
use crate::http::CheckedResolver;
use crate::kind::SourceContext;
use crate::location::{Location, Path, Segment};
use crate::pace::Pace;
use crate::settings::{read_secrets, read_settings};
use crate::source::{Bounds, Content, Entry, Fetched, Source, Tree, Validator};
use crate::tls;

mod received;
mod settings;

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many keys are listed at a time.
const PAGE_KEYS: usize = 1000;

/// How many objects of a directory are read at a time.
const PARALLEL_READS: usize = 4;

/// A connection to a bucket.
pub(crate) struct S3 {
    store: AmazonS3,
    /// Empty, or ends in `/`.
    prefix: String,
    egress: Egress,
    /// The endpoint's host if it is an address, which is connected to without the resolver.
    address: Option<(String, u16)>,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3").finish_non_exhaustive()
    }
}

/// Makes the client of an egress policy.
#[derive(Debug)]
struct Connector {
    egress: Egress,
    tls: rustls::ClientConfig,
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let builder = reqwest::Client::builder()
            .no_proxy()
            .referer(false)
            .tls_backend_preconfigured(self.tls.clone())
            .redirect(Policy::none())
            .dns_resolver(CheckedResolver(self.egress.clone()))
            .connect_timeout(CONNECT_TIMEOUT)
            .http1_only();
        let client = builder.build();
        let client =
            client.map_err(|error| object_store::Error::Generic { store: "S3", source: error.into() })?;
        Ok(HttpClient::new(Bounded(client)))
    }
}

impl S3 {
    /// Builds the source of settings.
    pub(crate) fn new(
        settings: &Value,
        secrets: &Map<String, Value>,
        context: &Arc<SourceContext>,
    ) -> Result<Self, SettingsError> {
        let settings: Settings = read_settings(settings)?;
        let secrets: Secrets =
            read_secrets(secrets, "an object with `accessKeyId` and `secretAccessKey`, texts")?;
        check_bucket(&settings.bucket)?;
        let region = settings.region.unwrap_or_else(|| "us-east-1".to_owned());
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(SettingsError::new("settings.region", "must be the name of a region"));
        }
        let tls = tls::configure(settings.ca.as_deref())?;
        let endpoint = settings.endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let mut endpoint = check_endpoint(&endpoint)?;
        let prefix = check_prefix(&settings.prefix)?;
        let address = match endpoint.host() {
            Some(Host::Domain(_)) | None => None,
            Some(host) => Some((host.to_string(), endpoint.port_or_known_default().unwrap_or_default())),
        };
        // A bucket is no part of an address.
        let is_virtual = !settings.path_style && address.is_none();
        if is_virtual {
            let host = format!("{}.{}", settings.bucket, endpoint.host_str().unwrap_or_default());
            let problem = "must not have a bucket in its host that is no name: set `pathStyle`";
            endpoint.set_host(Some(&host)).map_err(|_| SettingsError::new("settings.endpoint", problem))?;
        }
        let egress = Egress::new(settings.allow_networks, Arc::clone(&context.resolver));
        let mut builder = AmazonS3Builder::new()
            .with_endpoint(endpoint.as_str().trim_end_matches('/'))
            .with_allow_http(endpoint.scheme() == "http")
            .with_bucket_name(settings.bucket)
            .with_region(region)
            .with_virtual_hosted_style_request(is_virtual)
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .with_http_connector(Connector { egress: egress.clone(), tls });
        builder = match (secrets.access_key_id, secrets.secret_access_key) {
            (Some(id), Some(key)) => builder.with_access_key_id(id).with_secret_access_key(key),
            (None, None) => builder.with_skip_signature(true),
            _ => return Err(SettingsError::new("secrets", "must have both keys, or none")),
        };
        let store = builder.build().map_err(|_| SettingsError::new("settings", "cannot be used"))?;
        Ok(Self { store, prefix, egress, address })
    }

    /// Checks an address of the settings. Names are checked when they are resolved.
    async fn check_address(&self) -> Result<(), FetchError> {
        if let Some((host, port)) = &self.address {
            self.egress.resolve(host, *port).await?;
        }
        Ok(())
    }

    fn key(&self, path: &Path) -> String {
        let segments: Vec<_> = path.segments.iter().map(Segment::as_str).collect();
        format!("{}{}", self.prefix, segments.join("/"))
    }

    /// The prefix of the keys below a directory: empty, or with a final `/`.
    fn prefix(&self, path: &Path) -> String {
        let key = self.key(path);
        if key.is_empty() || key.ends_with('/') { key } else { key + "/" }
    }

    /// Reads an object, unless it has an entity tag.
    async fn read(
        &self,
        key: &str,
        name: Option<String>,
        known: Option<&Validator>,
        Bounds { bytes, pace, .. }: Bounds<'_>,
    ) -> Result<Option<(Content, Option<Validator>)>, FetchError> {
        let key = Key::parse(key).map_err(|_| FetchError::NotFound)?;
        let tag = known.and_then(|known| String::from_utf8(known.0.clone()).ok());
        let extensions = Receive::extensions(bytes, pace);
        let options = GetOptions { if_none_match: tag, extensions, ..GetOptions::default() };
        let found = match self.store.get_opts(&key, options).await {
            Err(object_store::Error::NotModified { .. }) => return Ok(None),
            found => found.map_err(|error| failure(&error))?,
        };
        let validator = found.meta.e_tag.clone().map(|tag| Validator(tag.into_bytes()));
        // Some servers do not compare it.
        if known.is_some() && validator.as_ref() == known {
            return Ok(None);
        }
        if found.meta.size > bytes {
            return Err(FetchError::TooLarge);
        }
        let mime_type = found.attributes.get(&Attribute::ContentType).and_then(|value| stated(value));
        let modified = modified(&found.meta);
        let mut body = found.into_stream();
        let mut read = BytesMut::new();
        while let Some(chunk) = body.try_next().await.map_err(|error| failure(&error))? {
            read.extend_from_slice(&chunk);
            // What is received may be more than was announced.
            if u64::try_from(read.len()).unwrap_or(u64::MAX) > bytes {
                return Err(FetchError::TooLarge);
            }
        }
        Ok(Some((Content { name, mime_type, modified, bytes: read.freeze() }, validator)))
    }

    /// Reads the objects directly in a directory.
    async fn read_directory(
        &self,
        path: &Path,
        known: Option<&Validator>,
        bounds: Bounds<'_>,
    ) -> Result<Fetched, FetchError> {
        let prefix = self.prefix(path);
        let (mut files, mut exists, mut token) = (Vec::new(), false, None);
        loop {
            let page = self.list(&prefix, Some("/"), token, bounds.pace).await?;
            exists |= !page.result.objects.is_empty() || !page.result.common_prefixes.is_empty();
            for object in page.result.objects {
                let name = object.location.as_ref().strip_prefix(&prefix).and_then(Segment::new);
                files.extend(name.map(|name| (name.as_str().to_owned(), object)));
            }
            if files.len() > bounds.entries {
                return Err(FetchError::TooLarge);
            }
            token = page.page_token;
            if token.is_none() {
                break;
            }
        }
        if !exists {
            return Err(FetchError::NotFound);
        }
        let sizes = files.iter().map(|(_, object)| object.size);
        if sizes.fold(0, u64::saturating_add) > bounds.bytes {
            return Err(FetchError::TooLarge);
        }
        files.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut digest = Sha256::new();
        for (name, object) in &files {
            digest.update(name.as_bytes());
            digest.update([0]);
            digest.update(validator(object).0);
            digest.update([0]);
        }
        let listed = Validator(digest.finalize().to_vec());
        if known == Some(&listed) {
            return Ok(Fetched::Unchanged);
        }
        let reads = files.into_iter().map(|(name, object)| async move {
            let read = self.read(object.location.as_ref(), Some(name), None, bounds).await?;
            read.map(|(content, _)| content).ok_or(FetchError::BadContent)
        });
        let mut reads = stream::iter(reads).buffered(PARALLEL_READS);
        let (mut contents, mut left) = (Vec::new(), bounds.bytes);
        while let Some(content) = reads.try_next().await? {
            let length = u64::try_from(content.bytes.len()).unwrap_or(u64::MAX);
            left = left.checked_sub(length).ok_or(FetchError::TooLarge)?;
            contents.push(content);
        }
        Ok(Fetched::Contents { contents, validator: Some(listed) })
    }

    /// A page of keys.
    async fn list(
        &self,
        prefix: &str,
        delimiter: Option<&'static str>,
        page_token: Option<String>,
        pace: Option<&Arc<Pace>>,
    ) -> Result<object_store::list::PaginatedListResult, FetchError> {
        let options = PaginatedListOptions {
            delimiter: delimiter.map(Into::into),
            max_keys: Some(PAGE_KEYS),
            page_token,
            extensions: Receive::extensions(LIST_BYTES, pace),
            ..PaginatedListOptions::default()
        };
        let prefix = (!prefix.is_empty()).then_some(prefix);
        self.store.list_paginated(prefix, options).await.map_err(|error| failure(&error))
    }
}

impl Source for S3 {
    fn fetch<'a>(
        &'a self,
        location: &'a Location,
        known: Option<&'a Validator>,
        bounds: Bounds<'a>,
    ) -> BoxFuture<'a, Result<Fetched, FetchError>> {
        Box::pin(async move {
            let Location::Path { path, query, reference: None } = location else {
                return Err(FetchError::NotAllowed);
            };
            if !query.is_empty() {
                return Err(FetchError::NotAllowed);
            }
            self.check_address().await?;
            if path.is_directory {
                return self.read_directory(path, known, bounds).await;
            }
            Ok(match self.read(&self.key(path), None, known, bounds).await? {
                None => Fetched::Unchanged,
                Some((content, validator)) => Fetched::Contents { contents: vec![content], validator },
            })
        })
    }

    fn scan<'a>(
        &'a self,
        tree: &'a Tree,
        include: &'a (dyn Fn(&str) -> bool + Send + Sync),
        _since: Option<Instant>,
        pace: Option<&'a Arc<Pace>>,
    ) -> BoxStream<'a, Result<Vec<Entry>, FetchError>> {
        let prefix = self.prefix(&tree.path);
        // The token of the next page, if there is one.
        let pages = stream::unfold(Some(None), move |next: Option<Option<String>>| {
            let prefix = prefix.clone();
            async move {
                let token = next?;
                let listing = async {
                    if tree.reference.is_some() {
                        return Err(FetchError::NotAllowed);
                    }
                    self.check_address().await?;
                    self.list(&prefix, None, token, pace).await
                };
                Some(match listing.await {
                    Err(error) => (Err(error), None),
                    Ok(listed) => {
                        let entry = |object: ObjectMeta| entry(&object, &prefix, include);
                        let entries = listed.result.objects.into_iter().filter_map(entry).collect();
                        (Ok(entries), listed.page_token.map(Some))
                    }
                })
            }
        });
        Box::pin(pages)
    }
}

/// The entry of an object, if it is a file of the tree and included with all directories above it.
fn entry(object: &ObjectMeta, prefix: &str, include: &(dyn Fn(&str) -> bool + Send + Sync)) -> Option<Entry> {
    let path = object.location.as_ref().strip_prefix(prefix)?;
    if !path.split('/').all(|segment| Segment::new(segment).is_some()) {
        return None;
    }
    let is_entered = path.match_indices('/').all(|(slash, _)| include(&path[..=slash]));
    (is_entered && include(path)).then(|| Entry {
        path: path.to_owned(),
        size: Some(object.size),
        modified: modified(object),
        validator: validator(object),
    })
}

/// The entity tag, or size and time where there is none.
fn validator(object: &ObjectMeta) -> Validator {
    let other = || format!("{} {}", object.size, object.last_modified.timestamp_micros());
    Validator(object.e_tag.clone().unwrap_or_else(other).into_bytes())
}

/// When an object changed, if RFC 3339 can express it.
fn modified(object: &ObjectMeta) -> Option<OffsetDateTime> {
    let modified = OffsetDateTime::from_unix_timestamp(object.last_modified.timestamp());
    modified.ok().filter(|at| at.year() >= 0)
}

/// What an error of the store means.
fn failure(error: &object_store::Error) -> FetchError {
    if let object_store::Error::InvalidPath { .. } = error {
        return FetchError::BadContent;
    }
    let mut kind = None;
    let mut cause = error.source();
    while let Some(found) = cause {
        // By the resolver, or of a status.
        if let Some(found) = found.downcast_ref::<FetchError>() {
            return *found;
        }
        kind = kind.or_else(|| found.downcast_ref::<HttpError>().map(HttpError::kind));
        cause = found.source();
    }
    match kind {
        Some(HttpErrorKind::Decode) => FetchError::BadContent,
        Some(_) => FetchError::Unreachable,
        None => FetchError::Status { retry_after: None },
    }
}

/// The MIME type that was stored with an object. AWS answers one for objects that were stored without, which would keep the
/// names of files from counting.
fn stated(mime_type: &str) -> Option<String> {
    (mime_type != "binary/octet-stream").then(|| mime_type.to_owned())
}

#[cfg(test)]
mod tests;
