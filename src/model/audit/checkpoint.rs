//! A checkpoint: where all chains stood at some moment, to be kept where nobody can change it who can change the log.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::chain::Digest;

/// What a checkpoint says that it is.
pub const API_VERSION: &str = "waggle/audit/v1";

/// Where all chains stood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Checkpoint {
    /// `waggle/audit/v1`.
    pub api_version: String,
    /// When it was made.
    pub at: String,
    /// The chain of chains, which holds where each chain ended that has ended.
    pub ledger: LedgerHead,
    /// The chains that had not ended.
    pub chains: Vec<ChainHead>,
}

/// How far the chain of chains went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LedgerHead {
    /// Its last entry.
    pub number: i64,
    /// The hash of that.
    #[schema(value_type = String)]
    pub hash: Digest,
}

/// How far a chain went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainHead {
    /// Which.
    pub chain: Uuid,
    /// Its last row.
    pub seq: i64,
    /// The hash of that.
    #[schema(value_type = String)]
    pub hash: Digest,
}
