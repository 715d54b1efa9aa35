//! A checkpoint: where all chains stood at some moment, to be kept where nobody can change it who can change the log.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::chain::Digest;
use super::encoding::{field, int8, text, uuid as uid};
use super::signature::{PublicKey, Purpose, Signature, Signer};

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
    /// The public key of the gateway that made it, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub signer: Option<PublicKey>,
    /// Its signature over all the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub signature: Option<Signature>,
}

impl Checkpoint {
    /// Signs it.
    #[must_use]
    pub fn signed(mut self, signer: &Signer) -> Self {
        self.signer = Some(signer.public());
        self.signature = Some(signer.sign(Purpose::Checkpoint, &self.digest()));
        self
    }

    /// Whether its signature is that of the key it names; `None` where it has neither.
    pub fn is_authentic(&self) -> Option<bool> {
        match (&self.signer, &self.signature) {
            (None, None) => None,
            (Some(signer), Some(signature)) => {
                Some(signer.verify(Purpose::Checkpoint, &self.digest(), signature))
            }
            _ => Some(false),
        }
    }

    /// The SHA-256 that is signed (`docs/audit.md`).
    pub fn digest(&self) -> Digest {
        let mut out = Vec::new();
        text(&mut out, &self.api_version);
        text(&mut out, &self.at);
        int8(&mut out, self.ledger.number);
        field(&mut out, &self.ledger.hash.0);
        if let Some(signer) = &self.signer {
            field(&mut out, &signer.0);
        }
        for ChainHead { chain, seq, hash } in &self.chains {
            uid(&mut out, *chain);
            int8(&mut out, *seq);
            field(&mut out, &hash.0);
        }
        Digest::of(&out)
    }
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
