//! What calls about connections take and answer.

use std::collections::BTreeMap;

use content_source::Kind;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::extract::present;
use crate::model::connection::{ConnectionLimitChanges, ConnectionLimits, StoredSecret, Tenants};
use crate::model::ids::Slug;
use crate::sources::{FailedFetch, TenantNames};

/// A new connection.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewConnection {
    pub(super) id: String,
    /// What it connects to: `http`, `file`, `s3`, `git` or `sql`.
    #[schema(value_type = String, example = "http")]
    pub(super) kind: Kind,
    /// The tenants that may use it: a list of ids, or `"*"` for all. Default: none.
    #[serde(default)]
    pub(super) tenants: NamedTenants,
    /// The settings of its kind.
    #[serde(default)]
    pub(super) settings: Map<String, Value>,
    /// Its secrets, which are encrypted and never answered.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub(super) secrets: Secrets,
    /// The limits of fetches, for each tenant and replica.
    #[serde(default)]
    pub(super) limits: ConnectionLimitChanges,
    /// Whether anything is fetched from it. Default: true.
    #[serde(default = "enabled")]
    pub(super) enabled: bool,
}

fn enabled() -> bool {
    true
}

/// A change of a connection.
#[derive(Deserialize, ToSchema)]
#[schema(as = ConnectionPatch)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Update {
    /// The tenants that may use it: a list of ids, or `"*"` for all.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = NamedTenants, required = false)]
    pub(super) tenants: Option<NamedTenants>,
    /// Members to set; `null` removes one, others stay as they are.
    #[serde(default)]
    pub(super) settings: Map<String, Value>,
    /// Secrets to set; `null` removes one, others stay as they are.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub(super) secrets: Secrets,
    /// Limits to set; others stay as they are.
    #[serde(default)]
    pub(super) limits: ConnectionLimitChanges,
    /// Whether anything is fetched from it.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = bool, required = false)]
    pub(super) enabled: Option<bool>,
}

/// Tenants by id, or `"*"` for all.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum NamedTenants {
    /// `"*"`: all tenants.
    All(String),
    /// These tenants.
    #[schema(value_type = Vec<String>)]
    Only(Vec<Slug>),
}

impl Default for NamedTenants {
    fn default() -> Self {
        Self::Only(Vec::new())
    }
}

impl<'de> Deserialize<'de> for NamedTenants {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let expected = || D::Error::custom("expected a list of tenants' ids, or \"*\"");
        match Value::deserialize(input)? {
            Value::String(all) if all == "*" => Ok(Self::All(all)),
            Value::Array(ids) => {
                let slug =
                    |id: &Value| Slug::parse(id.as_str().ok_or_else(expected)?).map_err(D::Error::custom);
                ids.iter().map(slug).collect::<Result<_, _>>().map(Self::Only)
            }
            _ => Err(expected()),
        }
    }
}

impl From<NamedTenants> for TenantNames {
    fn from(named: NamedTenants) -> Self {
        match named {
            NamedTenants::All(_) => Self::All,
            NamedTenants::Only(tenants) => Self::Only(tenants),
        }
    }
}

impl From<Tenants> for NamedTenants {
    fn from(tenants: Tenants) -> Self {
        match tenants {
            Tenants::All => Self::All("*".to_owned()),
            Tenants::Only(tenants) => Self::Only(tenants.into_keys().collect()),
        }
    }
}

/// Secrets as sent. An error about them never repeats one.
#[derive(Default)]
pub(super) struct Secrets(pub(super) Map<String, Value>);

impl<'de> Deserialize<'de> for Secrets {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        match Value::deserialize(input)? {
            Value::Object(secrets) => Ok(Self(secrets)),
            _ => Err(D::Error::custom("expected an object")),
        }
    }
}

/// A connection.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Connection)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConnectionView {
    #[schema(value_type = String)]
    pub(super) id: Slug,
    /// What it connects to: `http`, `file`, `s3`, `git` or `sql`.
    #[schema(value_type = String)]
    pub(super) kind: Kind,
    /// The tenants that may use it: a list of ids, or `"*"` for all.
    pub(super) tenants: NamedTenants,
    /// The settings of its kind.
    pub(super) settings: Map<String, Value>,
    /// Which secrets are set.
    pub(super) secrets: BTreeMap<String, SecretView>,
    /// The limits of fetches, for each tenant and replica.
    pub(super) limits: ConnectionLimits,
    pub(super) enabled: bool,
    /// Its state on this replica, the worst of all tenants: `ready`, `degraded` (the last fetch failed), `open` (nothing is
    /// fetched for a while), `failed` (its secrets or settings cannot be used) or `disabled`.
    pub(super) state: &'static str,
    /// The last fetch of this replica that failed.
    pub(super) last_error: Option<LastError>,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) created_at: OffsetDateTime,
}

/// A secret that is set.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecretView {
    /// Always true.
    pub(super) set: bool,
    /// When its value was last set.
    #[serde(with = "time::serde::rfc3339")]
    pub(super) updated_at: OffsetDateTime,
}

impl From<StoredSecret> for SecretView {
    fn from(secret: StoredSecret) -> Self {
        Self { set: true, updated_at: secret.updated_at }
    }
}

/// A fetch that failed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LastError {
    /// Why, as in `data.reason` of a failed read.
    pub(super) reason: &'static str,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) at: OffsetDateTime,
}

impl From<FailedFetch> for LastError {
    fn from(failed: FailedFetch) -> Self {
        Self { reason: failed.error.as_str(), at: failed.at }
    }
}

/// A connection that a tenant may use.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsableConnection {
    #[schema(value_type = String)]
    pub(super) id: Slug,
    /// What it connects to: `http`, `file`, `s3`, `git` or `sql`.
    #[schema(value_type = String)]
    pub(super) kind: Kind,
    /// Its state for the tenant on this replica: `ready`, `degraded`, `open`, `failed` or `disabled`.
    pub(super) state: &'static str,
}

/// The secrets that were encrypted under another key.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rekeyed {
    /// How many were.
    pub(super) secrets: usize,
    /// The id of the key that all secrets are encrypted under.
    pub(super) key_id: String,
}
