//! Verifies the signatures of ledger entries and checkpoints, and which keys are entitled to sign.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::ScannedEntry;
use crate::model::audit::signature::{PublicKey, SignaturePurpose};

/// State of a signing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyState {
    /// It may sign.
    Valid,
    /// Replaced by another key in this entry.
    Replaced(i64),
    /// Entered by no trusted key.
    Untrusted,
}

/// Why a signature is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum SignatureError {
    #[error("not signed, although earlier ledger entries are")]
    Unsigned,
    #[error("invalid signature")]
    Forged,
    #[error("{0} is not a trusted key, and was not entered by one")]
    Untrusted(PublicKey),
    #[error("signed by {0}, a key that was never entered")]
    Unknown(PublicKey),
    #[error("signed by {0}, a key that entry {1} replaced")]
    Replaced(PublicKey, i64),
}

/// Result of verifying the signatures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SignatureReport {
    /// The first signed entry.
    pub since: Option<i64>,
    /// The self-signed keys. The owner of the database may have entered one of them.
    pub keys: Vec<PublicKey>,
    /// Whether a set of trusted keys was given.
    pub against_trusted: bool,
}

/// The signing keys, as entered in the ledger.
pub(super) struct Signatures {
    trusted: Option<BTreeSet<PublicKey>>,
    keys: BTreeMap<PublicKey, KeyState>,
    report: SignatureReport,
}

impl Signatures {
    /// Trusts only the given keys; without any, those that are self-signed.
    pub(super) fn new(trusted: &[PublicKey]) -> Self {
        let trusted = (!trusted.is_empty()).then(|| trusted.iter().copied().collect());
        let report = SignatureReport { against_trusted: trusted.is_some(), ..SignatureReport::default() };
        Self { trusted, keys: BTreeMap::new(), report }
    }

    /// Checks the next entry. If it ends a chain, `opened` is the entry that opened the chain.
    pub(super) fn check(
        &mut self,
        entry: &ScannedEntry<'_>,
        opened: Option<i64>,
    ) -> Result<(), SignatureError> {
        // A chain that was opened before a key was entered or replaced may end without the newer key.
        let opened_before = |number: i64| opened.is_some_and(|opened| opened < number);
        let Some(signer) = entry.signer else {
            return match self.report.since {
                Some(since) if !opened_before(since) => Err(SignatureError::Unsigned),
                _ => Ok(()),
            };
        };
        let signature = entry.signature.ok_or(SignatureError::Forged)?;
        if !signer.verify(SignaturePurpose::Entry, &entry.actual_hash, &signature) {
            return Err(SignatureError::Forged);
        }
        self.report.since.get_or_insert(entry.number);
        if let Some(key) = entry.key {
            return self.enter(entry.number, key, signer);
        }
        match self.keys.get(&signer) {
            Some(KeyState::Valid) => Ok(()),
            Some(KeyState::Replaced(number)) if opened_before(*number) => Ok(()),
            Some(KeyState::Replaced(number)) => Err(SignatureError::Replaced(signer, *number)),
            Some(KeyState::Untrusted) => Err(SignatureError::Untrusted(signer)),
            None => Err(SignatureError::Unknown(signer)),
        }
    }

    fn enter(&mut self, number: i64, key: PublicKey, signer: PublicKey) -> Result<(), SignatureError> {
        if let Some(KeyState::Replaced(before)) = self.keys.get(&key) {
            return Err(SignatureError::Replaced(key, *before));
        }
        if key == signer {
            self.report.keys.push(key);
            let trusted = self.trusted.as_ref().is_none_or(|trusted| trusted.contains(&key));
            self.keys.insert(key, if trusted { KeyState::Valid } else { KeyState::Untrusted });
            return if trusted { Ok(()) } else { Err(SignatureError::Untrusted(key)) };
        }
        let vouched = match self.keys.get(&signer) {
            Some(KeyState::Valid) => Ok(()),
            Some(KeyState::Replaced(before)) => Err(SignatureError::Replaced(signer, *before)),
            Some(KeyState::Untrusted) => Err(SignatureError::Untrusted(signer)),
            None => Err(SignatureError::Unknown(signer)),
        };
        if vouched.is_ok() {
            self.keys.insert(signer, KeyState::Replaced(number));
        }
        let trusted = vouched.is_ok() || self.trusted.as_ref().is_some_and(|trusted| trusted.contains(&key));
        self.keys.insert(key, if trusted { KeyState::Valid } else { KeyState::Untrusted });
        vouched
    }

    /// Whether a key may sign a checkpoint.
    pub(super) fn vouches_for(&self, key: &PublicKey) -> bool {
        match self.keys.get(key) {
            Some(state) => *state != KeyState::Untrusted,
            None => self.trusted.as_ref().is_none_or(|trusted| trusted.contains(key)),
        }
    }

    /// The first signed entry.
    pub(super) fn since(&self) -> Option<i64> {
        self.report.since
    }

    /// The result.
    pub(super) fn into_report(self) -> SignatureReport {
        self.report
    }
}
