//! Parses a signed token (RFC 7515, compact serialization). Nothing of it is verified yet.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::error::TokenError;
use crate::model::algorithm::Algorithm;

/// The relevant members of a header. Locations of keys in it (`jku`, `x5u`, `jwk`, `x5c`) are ignored: only the
/// configuration decides where keys are fetched.
#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    typ: Option<String>,
    /// Any critical extension is unsupported.
    crit: Option<IgnoredAny>,
}

/// The parts of a token.
pub(super) struct Jws<'a> {
    header: Header,
    pub(super) claims: Value,
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
}

impl<'a> Jws<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Form)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Form)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Form);
        let header = serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::Form)?;
        let claims: Value = serde_json::from_slice(&decode(claims)?).map_err(|_| TokenError::Form)?;
        if !claims.is_object() {
            return Err(TokenError::Form);
        }
        Ok(Self { header, claims, signed: signed.as_bytes(), signature: decode(signature)? })
    }

    /// The algorithm, if it is accepted and the header requires nothing unsupported (RFC 8725, section 3.11; RFC 9068,
    /// section 2.1).
    pub(super) fn algorithm(&self, allowed: &[Algorithm]) -> Result<Algorithm, TokenError> {
        let is_access_token = |typ: &str| {
            ["jwt", "at+jwt", "application/at+jwt"].iter().any(|known| typ.eq_ignore_ascii_case(known))
        };
        if self.header.crit.is_some() || !self.header.typ.as_deref().is_none_or(is_access_token) {
            return Err(TokenError::Header);
        }
        let algorithm = Algorithm::parse(&self.header.alg).ok_or(TokenError::Algorithm)?;
        if allowed.contains(&algorithm) { Ok(algorithm) } else { Err(TokenError::Algorithm) }
    }

    /// The id of the key that the token names.
    pub(super) fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }
}
