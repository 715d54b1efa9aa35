//! The signature algorithms of access tokens (RFC 7518, RFC 8037). Only asymmetric ones are supported.

use std::fmt;

/// A signature algorithm. There is neither `none` nor a symmetric one, so that a public key cannot be misused
/// as a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// The value of the `alg` header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Parses a value of `alg`, case-sensitively. `Ed25519` is the newer name of `EdDSA` with that curve (RFC
    /// 9864).
    pub fn parse(text: &str) -> Option<Self> {
        let named = Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == text);
        named.or_else(|| (text == "Ed25519").then_some(Self::EdDsa))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Algorithm;

    #[test]
    fn algorithm_names_are_case_sensitive_and_asymmetric() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::parse(algorithm.as_str()), Some(algorithm));
        }
        assert_eq!(Algorithm::parse("Ed25519"), Some(Algorithm::EdDsa));
        for name in ["none", "None", "HS256", "HS384", "HS512", "rs256", "ES512", "ES256K", "Ed448", ""] {
            assert_eq!(Algorithm::parse(name), None, "{name}");
        }
    }
}
