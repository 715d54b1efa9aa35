//! Public keys of an issuer, from its key set (JWKS, RFC 7517), and signature verification.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::sync::Arc;

use crate::model::algorithm::Algorithm;

/// The maximum number of keys of an issuer.
const MAX_KEYS: usize = 100;

/// Identifies the key material of a key.
pub(super) type KeyDigest = [u8; 32];

/// The public keys of an issuer, which verify signatures of tokens.
#[derive(Debug)]
pub(super) struct KeySet(Vec<Arc<PublicKey>>);

/// Why a key set cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeySetError {
    #[error("it is not a JSON Web Key Set")]
    NotAKeySet,
    #[error("it lists more than {MAX_KEYS} keys")]
    TooManyKeys,
}

/// A public key.
#[derive(Debug)]
pub(super) struct PublicKey {
    id: Option<String>,
    /// The only algorithm that the key is for, if it names one.
    algorithm: Option<Algorithm>,
    material: Material,
    digest: KeyDigest,
}

#[derive(Debug)]
enum Material {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct Listed {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Parses a key set. Keys that are not for signatures, or of an unsupported type, are ignored (RFC 7517, section
    /// 5).
    pub(super) fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        let listed: Listed = serde_json::from_slice(text).map_err(|_| KeySetError::NotAKeySet)?;
        if listed.keys.len() > MAX_KEYS {
            return Err(KeySetError::TooManyKeys);
        }
        let read = |key| serde_json::from_value(key).ok().and_then(|key: Jwk| PublicKey::read(&key));
        Ok(Self(listed.keys.into_iter().filter_map(read).map(Arc::new).collect()))
    }

    /// The key with this id that fits the algorithm. For a token without a key id, the only key that fits.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<Arc<PublicKey>> {
        let mut fitting = self.0.iter().filter(|key| key.fits(algorithm));
        let found = match id {
            Some(id) => fitting.find(|key| key.id.as_deref() == Some(id)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        };
        found.cloned()
    }

    pub(super) fn has(&self, digest: KeyDigest) -> bool {
        self.0.iter().any(|key| key.digest == digest)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl PublicKey {
    fn read(jwk: &Jwk) -> Option<Self> {
        let for_signatures = jwk.r#use.as_deref().is_none_or(|used| used == "sig")
            && jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        let algorithm = match jwk.alg.as_deref() {
            Some(name) => Some(Algorithm::parse(name)?),
            None => None,
        };
        let material = Material::read(jwk).filter(|_| for_signatures)?;
        let digest = material.digest();
        Some(Self { id: jwk.kid.clone(), algorithm, material, digest })
    }

    /// Whether the key is for this algorithm: its type must match, and its `alg` if it has one.
    fn fits(&self, algorithm: Algorithm) -> bool {
        use Algorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        let of_its_kind = match self.material {
            Material::Rsa { .. } => matches!(algorithm, Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512),
            Material::P256(_) => algorithm == Es256,
            Material::P384(_) => algorithm == Es384,
            Material::Ed25519(_) => algorithm == EdDsa,
        };
        of_its_kind && self.algorithm.is_none_or(|own| own == algorithm)
    }

    pub(super) fn digest(&self) -> KeyDigest {
        self.digest
    }

    /// Whether the signature was made with the private key. RSA keys below 2048 bits verify nothing.
    pub(super) fn verifies(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        let check = |how: &'static dyn VerificationAlgorithm, point: &[u8]| {
            UnparsedPublicKey::new(how, point).verify(signed, signature).is_ok()
        };
        match &self.material {
            Material::Rsa { modulus, exponent } => rsa(algorithm).is_some_and(|how| {
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(how, signed, signature).is_ok()
            }),
            Material::P256(point) => check(&signature::ECDSA_P256_SHA256_FIXED, point),
            Material::P384(point) => check(&signature::ECDSA_P384_SHA384_FIXED, point),
            Material::Ed25519(point) => check(&signature::ED25519, point),
        }
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => None,
    }
}

impl Material {
    fn read(jwk: &Jwk) -> Option<Self> {
        match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => {
                Some(Self::Rsa { modulus: number(jwk.n.as_deref())?, exponent: number(jwk.e.as_deref())? })
            }
            ("EC", Some("P-256")) => Some(Self::P256(point(jwk, 32)?)),
            ("EC", Some("P-384")) => Some(Self::P384(point(jwk, 48)?)),
            ("OKP", Some("Ed25519")) => {
                Some(Self::Ed25519(bytes(jwk.x.as_deref()).filter(|point| point.len() == 32)?))
            }
            _ => None,
        }
    }

    fn digest(&self) -> KeyDigest {
        let (kind, parts): (u8, [&[u8]; 2]) = match self {
            Self::Rsa { modulus, exponent } => (1, [exponent, modulus]),
            Self::P256(point) => (2, [point, &[]]),
            Self::P384(point) => (3, [point, &[]]),
            Self::Ed25519(point) => (4, [point, &[]]),
        };
        let mut digest = Sha256::new_with_prefix([kind]);
        digest.update(u64::try_from(parts[0].len()).unwrap_or(u64::MAX).to_be_bytes());
        for part in parts {
            digest.update(part);
        }
        digest.finalize().into()
    }
}

fn bytes(text: Option<&str>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text?).ok()
}

/// A number without leading zeros, as verification requires.
fn number(text: Option<&str>) -> Option<Vec<u8>> {
    let bytes = bytes(text)?;
    Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect())
}

/// An uncompressed point with coordinates of this size.
fn point(jwk: &Jwk, length: usize) -> Option<Vec<u8>> {
    let coordinate = |text: &Option<String>| bytes(text.as_deref()).filter(|bytes| bytes.len() == length);
    Some([vec![4], coordinate(&jwk.x)?, coordinate(&jwk.y)?].concat())
}
