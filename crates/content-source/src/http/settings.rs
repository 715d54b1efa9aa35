//! The settings and secrets of an HTTP API.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use reqwest::Client;
use reqwest::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use reqwest::redirect::Policy;
use rustls::ClientConfig;
use serde::Deserialize;
use serde_json::{Map, Value};
use url::{Host, Url};

use crate::error::SettingsError;
use crate::settings::{networks, read_secrets, read_settings};
use crate::tls;

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How many idle connections to a host are kept.
const MAX_IDLE: usize = 16;

/// The maximum number of headers, of settings and of secrets each.
const MAX_HEADERS: usize = 64;

/// What requests name themselves, unless `headers` has a `User-Agent`.
const USER_AGENT: &str = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));

/// Headers that the client sets: others would change what is asked for, or how the connection is used.
const RESERVED: [HeaderName; 14] = [
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_LENGTH,
    EXPECT,
    HOST,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    RANGE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
];

/// What settings and secrets say, validated.
pub(super) struct Settings {
    pub(super) base_url: Url,
    pub(super) headers: HeaderMap,
    pub(super) allow_networks: Vec<IpNet>,
    pub(super) allow_redirects: Vec<Target>,
    pub(super) tls: ClientConfig,
}

/// Where a redirect may lead: a host, at any port unless one is given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    host: Host,
    port: Option<u16>,
}

impl Target {
    /// Whether a URL leads there.
    pub(super) fn has(&self, url: &Url) -> bool {
        url.host().is_some_and(|host| host.to_owned() == self.host)
            && self.port.is_none_or(|port| url.port_or_known_default() == Some(port))
    }

    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, Some(port.parse().ok()?))
            }
            _ => (text, None),
        };
        Some(Self { host: Host::parse(host).ok()?, port })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct SettingsForm {
    base_url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "networks")]
    allow_networks: Vec<IpNet>,
    #[serde(default)]
    allow_redirects: Vec<String>,
    ca: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretsForm {
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Reads and validates.
pub(super) fn read(settings: &Value, secrets: &Map<String, Value>) -> Result<Settings, SettingsError> {
    let form: SettingsForm = read_settings(settings)?;
    let secrets: SecretsForm = read_secrets(secrets, "an object with `headers`, an object of texts")?;
    let mut headers = HeaderMap::new();
    headers.insert(reqwest::header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    insert(&mut headers, form.headers, "settings.headers")?;
    // A secret header goes in place of one that is none.
    insert(&mut headers, secrets.headers, "secrets.headers")?;
    let target = |text: String| {
        let problem = "must have hosts such as cdn.example.com or cdn.example.com:8443";
        Target::parse(&text).ok_or_else(|| SettingsError::new("settings.allowRedirects", problem))
    };
    Ok(Settings {
        base_url: base_url(&form.base_url)?,
        headers,
        allow_networks: form.allow_networks,
        allow_redirects: form.allow_redirects.into_iter().map(target).collect::<Result<_, _>>()?,
        tls: tls::configure(form.ca.as_deref())?,
    })
}

/// A client that follows no redirects, uses no proxy, and decompresses nothing.
pub(super) fn client(
    tls: ClientConfig,
    resolver: impl reqwest::dns::Resolve + 'static,
) -> Result<Client, SettingsError> {
    let builder = Client::builder()
        .no_proxy()
        .no_gzip()
        .no_brotli()
        .no_deflate()
        .no_zstd()
        .referer(false)
        .redirect(Policy::none())
        .dns_resolver(resolver)
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE)
        .http1_only();
    builder.build().map_err(|_| SettingsError::new("settings", "cannot be used"))
}

fn base_url(text: &str) -> Result<Url, SettingsError> {
    let refuse = |problem| Err(SettingsError::new("settings.baseUrl", problem));
    let Ok(url) = Url::parse(text) else {
        return refuse("must be a URL such as https://api.example.com/v1");
    };
    if !matches!(url.scheme(), "http" | "https") {
        return refuse("must begin with http:// or https://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("must not have a user or a password: send them as a secret header");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refuse("must not have a query or a fragment");
    }
    Ok(url)
}

/// Adds headers. An error shows no value.
fn insert(
    headers: &mut HeaderMap,
    added: BTreeMap<String, String>,
    member: &str,
) -> Result<(), SettingsError> {
    if added.len() > MAX_HEADERS {
        return Err(SettingsError::new(member, format!("has more than {MAX_HEADERS} headers")));
    }
    for (name, value) in added {
        let refuse = |problem: &str| Err(SettingsError::new(member, format!("has `{name}`, {problem}")));
        let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
            return refuse("which is not a name of a header");
        };
        if RESERVED.contains(&parsed) || parsed == UPGRADE || parsed.as_str().starts_with("proxy-") {
            return refuse("which the client sets itself");
        }
        let Ok(mut value) = HeaderValue::from_str(&value) else {
            return refuse("whose value is not one of a header");
        };
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    Ok(())
}
