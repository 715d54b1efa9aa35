//! Ed25519 signatures (RFC 8032) of ledger entries and checkpoints, and signing keys.
//!
//! The signed message is a purpose and a SHA-256 hash, so that a signature is valid for one purpose only.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::digest::Digest;

/// Prefix of the text form of a public key.
const ALGORITHM: &str = "ed25519:";
/// A PKCS#8 document (RFC 8410, section 7) up to the 32 bytes of the private key.
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// Maximum number of keys per file.
const MAX_KEYS: usize = 16;

/// What a signature is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignaturePurpose {
    /// An entry of the ledger.
    Entry,
    /// A checkpoint.
    Checkpoint,
}

impl SignaturePurpose {
    /// The bytes that are signed.
    fn message(self, digest: &Digest) -> Vec<u8> {
        let purpose: &[u8] = match self {
            Self::Entry => b"waggle audit entry\n",
            Self::Checkpoint => b"waggle audit checkpoint\n",
        };
        [purpose, &digest.0[..]].concat()
    }
}

/// An Ed25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

/// The text is not a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected ed25519: and the base64 of 32 bytes, as `waggle audit key` prints it")]
pub struct PublicKeyError;

impl PublicKey {
    /// Whether `signature` is valid.
    pub fn verify(&self, purpose: SignaturePurpose, digest: &Digest, signature: &Signature) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(&purpose.message(digest), &signature.0).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let bytes = text.strip_prefix(ALGORITHM).and_then(|text| STANDARD.decode(text).ok());
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or(PublicKeyError)
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// An Ed25519 signature.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = STANDARD.decode(String::deserialize(deserializer)?).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| de::Error::custom("expected the base64 of 64 bytes"))
    }
}

/// Why a file has no usable signing keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// The file has no private key, or too many.
    #[error("expected 1 to {MAX_KEYS} Ed25519 private keys in PEM (PKCS#8)")]
    Count,
    /// A block is not PEM, or its content is not an Ed25519 key.
    #[error("private key {0} is not an Ed25519 key in PEM (PKCS#8)")]
    Key(usize),
}

/// The signing key, and the keys that it replaced.
pub struct Signer {
    pair: Ed25519KeyPair,
    replaced: Vec<Ed25519KeyPair>,
}

impl Signer {
    /// Parses private keys in PEM. The first one signs; the others are the keys that it replaced, newest
    /// first.
    ///
    /// # Errors
    /// If there is no key, there are too many, or one is not an Ed25519 key.
    pub fn parse(pem: &[u8]) -> Result<Self, SigningKeyError> {
        let mut pairs = Vec::new();
        for (nth, block) in PrivatePkcs8KeyDer::pem_slice_iter(pem).enumerate().take(MAX_KEYS + 1) {
            let wrong = SigningKeyError::Key(nth + 1);
            let document = block.map_err(|_| wrong)?;
            let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(document.secret_pkcs8_der());
            pairs.push(pair.map_err(|_| wrong)?);
        }
        if pairs.is_empty() || pairs.len() > MAX_KEYS {
            return Err(SigningKeyError::Count);
        }
        let pair = pairs.remove(0);
        Ok(Self { pair, replaced: pairs })
    }

    /// Encodes 32 random bytes as a private key in PEM.
    pub fn pem(private: &[u8; 32]) -> String {
        let document = STANDARD.encode([&PKCS8_HEAD[..], private].concat());
        format!("-----BEGIN PRIVATE KEY-----\n{document}\n-----END PRIVATE KEY-----\n")
    }

    /// The public key of the signing key.
    pub fn public(&self) -> PublicKey {
        public(&self.pair)
    }

    /// The public keys of the replaced keys, newest first.
    pub fn replaced(&self) -> impl Iterator<Item = PublicKey> {
        self.replaced.iter().map(public)
    }

    /// Signs a hash.
    pub fn sign(&self, purpose: SignaturePurpose, digest: &Digest) -> Signature {
        sign(&self.pair, purpose, digest)
    }

    /// Signs with the private key of `key`; `None` if the signer does not have it.
    pub fn sign_as(&self, key: &PublicKey, purpose: SignaturePurpose, digest: &Digest) -> Option<Signature> {
        let pair = std::iter::once(&self.pair).chain(&self.replaced).find(|pair| public(pair) == *key)?;
        Some(sign(pair, purpose, digest))
    }
}

fn public(pair: &Ed25519KeyPair) -> PublicKey {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(pair.public_key().as_ref());
    PublicKey(bytes)
}

fn sign(pair: &Ed25519KeyPair, purpose: SignaturePurpose, digest: &Digest) -> Signature {
    let mut bytes = [0; 64];
    bytes.copy_from_slice(pair.sign(&purpose.message(digest)).as_ref());
    Signature(bytes)
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("public", &self.public()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{PublicKey, PublicKeyError, Signature, SignaturePurpose, Signer, SigningKeyError};
    use crate::model::audit::digest::Digest;

    fn pems(privates: &[u8]) -> String {
        privates.iter().map(|byte| Signer::pem(&[*byte; 32])).collect()
    }

    #[test]
    fn signature_is_valid_for_its_key_purpose_and_digest_only() {
        let signer = Signer::parse(pems(&[1]).as_bytes()).unwrap();
        let digest = Digest::of(b"x");
        let signature = signer.sign(SignaturePurpose::Entry, &digest);
        assert!(signer.public().verify(SignaturePurpose::Entry, &digest, &signature));
        assert!(!signer.public().verify(SignaturePurpose::Checkpoint, &digest, &signature));
        assert!(!signer.public().verify(SignaturePurpose::Entry, &Digest::of(b"y"), &signature));
        let other = Signer::parse(pems(&[2]).as_bytes()).unwrap();
        assert!(!other.public().verify(SignaturePurpose::Entry, &digest, &signature));
    }

    #[test]
    fn first_key_signs_and_the_others_are_replaced() {
        let signer = Signer::parse(pems(&[3, 2, 1]).as_bytes()).unwrap();
        let of = |private| Signer::parse(pems(&[private]).as_bytes()).unwrap().public();
        assert_eq!((signer.public(), signer.replaced().collect()), (of(3), vec![of(2), of(1)]));
        let digest = Digest::of(b"x");
        let signature = signer.sign_as(&of(1), SignaturePurpose::Entry, &digest).unwrap();
        assert!(of(1).verify(SignaturePurpose::Entry, &digest, &signature));
        assert_eq!(signer.sign_as(&of(4), SignaturePurpose::Entry, &digest), None);
    }

    #[test]
    fn openssl_key_is_parsed() {
        // RFC 8410, section 10.3, without and with attributes and the public key.
        let v1 = "-----BEGIN PRIVATE KEY-----\n\
            MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
        let signer = Signer::parse(v1.as_bytes()).unwrap();
        assert_eq!(signer.public().to_string(), "ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=");
    }

    #[test]
    fn text_without_an_ed25519_key_is_refused() {
        let refused = |text: &str| Signer::parse(text.as_bytes()).map(|signer| signer.public());
        assert_eq!(refused(""), Err(SigningKeyError::Count));
        assert_eq!(refused(&pems(&[7; 17])), Err(SigningKeyError::Count));
        let cut = Signer::pem(&[1; 32]).replace("MC4C", "MC4D");
        assert_eq!(refused(&format!("{}{cut}", pems(&[1]))), Err(SigningKeyError::Key(2)));
    }

    #[test]
    fn public_key_and_signature_parse_to_themselves() {
        let signer = Signer::parse(pems(&[1]).as_bytes()).unwrap();
        let key = signer.public();
        assert_eq!(key.to_string().parse(), Ok(key));
        for wrong in ["", "ed25519:", "ed25519:AAAA", &key.to_string()[8..]] {
            assert_eq!(wrong.parse::<PublicKey>(), Err(PublicKeyError), "{wrong}");
        }
        let signature = signer.sign(SignaturePurpose::Entry, &Digest::of(b"x"));
        let json = serde_json::to_string(&signature).unwrap();
        assert_eq!(serde_json::from_str::<Signature>(&json).unwrap(), signature);
    }
}
