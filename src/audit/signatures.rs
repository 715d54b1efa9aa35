//! Who signed the entries of the chain of chains, and whether they were entitled to.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Entry;
use crate::model::audit::signature::{PublicKey, Purpose};

/// What is known of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It signs.
    Valid,
    /// Another one replaced it in this entry.
    Replaced(i64),
    /// No key that is trusted vouches for it.
    Untrusted,
}

/// Why an entry is not believed to come from a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum Doubt {
    #[error("it is not signed, and entries before it are")]
    Unsigned,
    #[error("its signature is not that of the key it names")]
    Forged,
    #[error("{0} is not one of the keys that are trusted, and none of these has entered it")]
    Untrusted(PublicKey),
    #[error("{0} signs it, which was never entered")]
    Unknown(PublicKey),
    #[error("{0} signs it, which entry {1} replaced")]
    Replaced(PublicKey, i64),
}

/// What verification says of the signatures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signing {
    /// The first entry that is signed.
    pub since: Option<i64>,
    /// The keys that vouch for themselves: whoever owns the database may have entered one that no one trusts.
    pub keys: Vec<PublicKey>,
    /// Whether these were held against keys that are trusted.
    pub compared: bool,
}

/// The keys, as the entries come.
pub(super) struct Signatures {
    trusted: Option<BTreeSet<PublicKey>>,
    keys: BTreeMap<PublicKey, Standing>,
    signing: Signing,
}

impl Signatures {
    /// Trusting these keys alone; without any, those that entered themselves.
    pub(super) fn new(trusted: &[PublicKey]) -> Self {
        let trusted = (!trusted.is_empty()).then(|| trusted.iter().copied().collect());
        let signing = Signing { compared: trusted.is_some(), ..Signing::default() };
        Self { trusted, keys: BTreeMap::new(), signing }
    }

    /// Takes the next entry; `opened` is the entry with which the chain that it ends began, if it ends one.
    pub(super) fn check(&mut self, entry: &Entry<'_>, opened: Option<i64>) -> Result<(), Doubt> {
        // Ends of chains that began before a key was given, or replaced: their gateways go on without it until they end.
        let begun_before = |number: i64| opened.is_some_and(|opened| opened < number);
        let Some(signer) = entry.signer else {
            return match self.signing.since {
                Some(since) if !begun_before(since) => Err(Doubt::Unsigned),
                _ => Ok(()),
            };
        };
        let signature = entry.signature.ok_or(Doubt::Forged)?;
        if !signer.verify(Purpose::Entry, &entry.real, &signature) {
            return Err(Doubt::Forged);
        }
        self.signing.since.get_or_insert(entry.number);
        if let Some(key) = entry.key {
            return self.enter(entry.number, key, signer);
        }
        match self.keys.get(&signer) {
            Some(Standing::Valid) => Ok(()),
            Some(Standing::Replaced(number)) if begun_before(*number) => Ok(()),
            Some(Standing::Replaced(number)) => Err(Doubt::Replaced(signer, *number)),
            Some(Standing::Untrusted) => Err(Doubt::Untrusted(signer)),
            None => Err(Doubt::Unknown(signer)),
        }
    }

    fn enter(&mut self, number: i64, key: PublicKey, signer: PublicKey) -> Result<(), Doubt> {
        if let Some(Standing::Replaced(before)) = self.keys.get(&key) {
            return Err(Doubt::Replaced(key, *before));
        }
        if key == signer {
            self.signing.keys.push(key);
            let trusted = self.trusted.as_ref().is_none_or(|trusted| trusted.contains(&key));
            self.keys.insert(key, if trusted { Standing::Valid } else { Standing::Untrusted });
            return if trusted { Ok(()) } else { Err(Doubt::Untrusted(key)) };
        }
        let vouched = match self.keys.get(&signer) {
            Some(Standing::Valid) => Ok(()),
            Some(Standing::Replaced(before)) => Err(Doubt::Replaced(signer, *before)),
            Some(Standing::Untrusted) => Err(Doubt::Untrusted(signer)),
            None => Err(Doubt::Unknown(signer)),
        };
        if vouched.is_ok() {
            self.keys.insert(signer, Standing::Replaced(number));
        }
        let trusted = vouched.is_ok() || self.trusted.as_ref().is_some_and(|trusted| trusted.contains(&key));
        self.keys.insert(key, if trusted { Standing::Valid } else { Standing::Untrusted });
        vouched
    }

    /// Whether a key may sign a checkpoint.
    pub(super) fn vouches_for(&self, key: &PublicKey) -> bool {
        match self.keys.get(key) {
            Some(standing) => *standing != Standing::Untrusted,
            None => self.trusted.as_ref().is_none_or(|trusted| trusted.contains(key)),
        }
    }

    /// The first entry that is signed.
    pub(super) fn since(&self) -> Option<i64> {
        self.signing.since
    }

    /// What it comes to.
    pub(super) fn into_signing(self) -> Signing {
        self.signing
    }
}
