//! Checkpoints: the ends of all chains at one time, to be stored outside the reach of those who can modify
//! the log.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::digest::Digest;
use super::encoding::{field, int8, text, uuid as uid};
use super::signature::{PublicKey, Signature, SignaturePurpose, Signer};

/// The `apiVersion` of checkpoints.
pub const API_VERSION: &str = "waggle/audit/v1";

/// The ends of all chains at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Checkpoint {
    /// Always `waggle/audit/v1`.
    pub api_version: String,
    /// When the checkpoint was made (RFC 3339).
    pub at: String,
    /// The ledger: the chain of entries about all chains, including where closed chains ended.
    pub ledger: LedgerHead,
    /// The chains that were open.
    pub chains: Vec<ChainHead>,
    /// The public key of the gateway that made the checkpoint, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub signer: Option<PublicKey>,
    /// The signature over all other members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub signature: Option<Signature>,
}

impl Checkpoint {
    /// Signs the checkpoint.
    #[must_use]
    pub fn signed(mut self, signer: &Signer) -> Self {
        self.signer = Some(signer.public());
        self.signature = Some(signer.sign(SignaturePurpose::Checkpoint, &self.digest()));
        self
    }

    /// Whether the signature is valid for the key in the checkpoint; `None` if there is neither.
    pub fn is_authentic(&self) -> Option<bool> {
        match (&self.signer, &self.signature) {
            (None, None) => None,
            (Some(signer), Some(signature)) => {
                Some(signer.verify(SignaturePurpose::Checkpoint, &self.digest(), signature))
            }
            _ => Some(false),
        }
    }

    /// The SHA-256 hash that is signed (`docs/audit.md`).
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

/// The last entry of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LedgerHead {
    /// Number of the last entry.
    pub number: i64,
    /// Hash of the last entry.
    #[schema(value_type = String)]
    pub hash: Digest,
}

/// The last row of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainHead {
    /// Identifies the chain.
    pub chain: Uuid,
    /// Number of the last row.
    pub seq: i64,
    /// Hash of the last row.
    #[schema(value_type = String)]
    pub hash: Digest,
}
