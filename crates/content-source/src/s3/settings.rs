//! The settings and secrets of a bucket.

use ipnet::IpNet;
use serde::Deserialize;
use url::Url;

use crate::error::SettingsError;
use crate::location::Segment;
use crate::settings::networks;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Settings {
    pub(super) endpoint: Option<String>,
    pub(super) bucket: String,
    pub(super) region: Option<String>,
    #[serde(default)]
    pub(super) prefix: String,
    #[serde(default)]
    pub(super) path_style: bool,
    #[serde(default, deserialize_with = "networks")]
    pub(super) allow_networks: Vec<IpNet>,
    pub(super) ca: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Secrets {
    pub(super) access_key_id: Option<String>,
    pub(super) secret_access_key: Option<String>,
}

pub(super) fn check_endpoint(text: &str) -> Result<Url, SettingsError> {
    let refuse = |problem| Err(SettingsError::new("settings.endpoint", problem));
    let Ok(url) = Url::parse(text) else { return refuse("must be a URL such as https://s3.example.com") };
    if !matches!(url.scheme(), "http" | "https") {
        return refuse("must begin with http:// or https://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("must not have a user or a password: keys belong into `secrets`");
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return refuse("must not have a path, a query or a fragment");
    }
    Ok(url)
}

pub(super) fn check_bucket(name: &str) -> Result<(), SettingsError> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_valid = (3..=255).contains(&name.len()) && name.bytes().all(is_name) && !name.contains("..");
    if is_valid { Ok(()) } else { Err(SettingsError::new("settings.bucket", "must be the name of a bucket")) }
}

/// The prefix with a final `/`.
pub(super) fn check_prefix(text: &str) -> Result<String, SettingsError> {
    let trimmed = text.trim_matches('/');
    if trimmed.is_empty() {
        return Ok(String::new());
    }
    if !trimmed.split('/').all(|segment| Segment::new(segment).is_some()) {
        let problem = "must be a path without empty segments, `.` and `..`";
        return Err(SettingsError::new("settings.prefix", problem));
    }
    Ok(format!("{trimmed}/"))
}
