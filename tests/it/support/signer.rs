//! Signing keys, and tokens with arbitrary content.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512,
    RsaEncoding, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};

/// Generated for these tests only: generating an RSA key takes a second, and needs a crate that is no dependency.
const RSA: &str = "MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQCQmiSFhjchk7hKtVL2OkaNQaUMBtaqVL3jm5iMgbC832EvM+9q\
     IsXG9AuryfVeeqNkPF5wRq8cKGuqbEp9e8MtiI7kG6oGr5KJHS47FcFF8hFxeTQPcpHV3qVOueTvDcrQQ/RNu9M0NOg95Xq2CYjK\
     nSHg9cVPYAmMRzqC2Iq+do7778jlmC8PCYOGSHWaunBogUT5SHfzEVFjhHem+yLG0QHYtX8Sd/R2kctK6NO6WM/XuhQf150RiEND\
     ia4hEqrhf1os+Eg6gd5bommlEI6gT85vcZ05sIIdE080ZgrbJ7j49kymY7VX8DzQO/CLr3SQQ5nvt+SftWCC1FtfJ6RTAgMBAAEC\
     ggEADAAu7cHwy2GWFuUriHHXrxt2liPvJt23kK82HtsYjuQ/DYrS4M0X+uYAHfa53WhyLPxxngHPwJd+L/uixv1BeoLt0PKWzs09\
     bRG154NrseFgHzm+31VT0xsSPxFgdZKAdX5eRSFEav3FFHX6FCeAachWqnPbNzYyNKkoqvlLsnjGe8EmMgK2KAlZYuRCZtwuargv\
     /Y0dLjI/o1oAO5bmcBYf1dFwEqCnT3e7eorvvP92SIN2mG/N9EY4BJsOGEQwfzMVr4X17+Q4TJsqEieXbH9XubRG0s8HqyPma2I5\
     E6kVmcKUsIqY94vVuGy0NyaKZB+gLFJJlO7HnU6zDdx6SQKBgQDGWHS04yiZyIZdeXGZMASr+3RsK40R2kzbcTcmlN4r4P/HroF5\
     ST0pdri34o2QyxLcY2P0sfUsuCMmQIn/g4EE3uZdQdVlqgSGDBwcVGOZP0H5V/l8vhKpUhxvz1lq/DV+tU4aakA0lz9pQWmy3LL9\
     O3K+asXHxphTMdxqeJ/g5wKBgQC6onZrvFtWE1+LtF5+410UQdBU7tDHszkB8aj6A+R7cLvoybO4x9ScxgAAzZQ/OCvcxOF8BALN\
     igHtq4tAUj9iu3+Tsa77tJU/CykrsaaHtSyyuu861i5qaV3ggtAS9NMypYx/1+sjpX676vWbBnL04EanRuOe1o4JB28xZ1Q3tQKB\
     gFTCXC0onaMKBBFR4m+aC4ULEbdf7QriBNIJ0Y2VNFP/9I36Tq3r1E0xxMIf+GsVvNudRYu9uI4BqlOgZNhh8/KG5l6X0X9+Zix6\
     ZFDe5ykH1UOeiqj5+LOOuUQ2kXmciae6BsRW/1T6BUkPgQHEOmDo1KH2ssoqXdG/jveY0ImlAoGAOudDkMUl3ojGwwTuPgXsPpR2\
     +BdXdW+vMlnfBulrlzoBVHs0acFH7SLgpWA8xaco0Miikc2CRPSlnylhDa/nqXWb0jVmELLx16/iEpRDBtm7fb1Z+6vVgmg25MDk\
     gtcaQQXWzhKLd/ingw+o7ICgj4CpS+ontN3qfhcGlQUTo3ECgYBt5+ANOiolbPlLLdAgriPK8UuqjFVr5dCHWlQmZJB3XfmziW9A\
     d81//Vve2QwHLNTZzjYUXgVyaSbRK8eIySles5dYgLaQAmxE05xyXX2p9eC6v714NyCroWd2Rxh8+hfIGhNr0D9IQUxLkzj5QLFB\
     //tVFKG3u4sadTxAmabPPA==";

/// A private key with its key id and algorithm.
pub(crate) struct Signer {
    pub(crate) id: String,
    pub(crate) algorithm: &'static str,
    key: Key,
}

enum Key {
    Rsa(Box<RsaKeyPair>, &'static dyn RsaEncoding),
    Ecdsa(EcdsaKeyPair, &'static str),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    /// A new key for an algorithm; all RSA signers share one key.
    pub(crate) fn new(id: &str, algorithm: &'static str) -> Self {
        let random = SystemRandom::new();
        let rsa = |encoding: &'static dyn RsaEncoding| {
            let key = RsaKeyPair::from_pkcs8(&STANDARD.decode(RSA).unwrap()).unwrap();
            Key::Rsa(Box::new(key), encoding)
        };
        let ecdsa = |how, curve| {
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
            Key::Ecdsa(EcdsaKeyPair::from_pkcs8(how, pkcs8.as_ref(), &random).unwrap(), curve)
        };
        let key = match algorithm {
            "RS256" => rsa(&RSA_PKCS1_SHA256),
            "RS384" => rsa(&RSA_PKCS1_SHA384),
            "RS512" => rsa(&RSA_PKCS1_SHA512),
            "PS256" => rsa(&RSA_PSS_SHA256),
            "PS384" => rsa(&RSA_PSS_SHA384),
            "PS512" => rsa(&RSA_PSS_SHA512),
            "ES256" => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
            "ES384" => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
            "EdDSA" => {
                let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
                Key::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
            }
            other => panic!("no {other}"),
        };
        Self { id: id.to_owned(), algorithm, key }
    }

    /// The public key as a JWK.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &self.key {
            Key::Rsa(key, _) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "n": encode(&public.n), "e": encode(&public.e)})
            }
            Key::Ecdsa(key, curve) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(key.public_key().as_ref().len() / 2);
                json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)})
            }
            Key::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(key.public_key().as_ref())})
            }
        };
        (jwk["kid"], jwk["use"], jwk["alg"]) = (json!(self.id), json!("sig"), json!(self.algorithm));
        jwk
    }

    /// A token with the header of this key.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": self.algorithm, "kid": self.id, "typ": "at+jwt"}), claims)
    }

    /// A token with any header, signed by this key.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// A token with any header and payload texts.
    pub(crate) fn sign_text(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        let signature = self.signature(signed.as_bytes());
        format!("{signed}.{}", encode(&signature))
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Key::Rsa(key, encoding) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(*encoding, &random, message, &mut signature).unwrap();
                signature
            }
            Key::Ecdsa(key, _) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Key::Ed25519(key) => key.sign(message).as_ref().to_vec(),
        }
    }

    /// The public key in the form that algorithm confusion would use as a secret.
    pub(crate) fn public_bytes(&self) -> Vec<u8> {
        match &self.key {
            Key::Rsa(key, _) => key.public().as_ref().to_vec(),
            Key::Ecdsa(key, _) => key.public_key().as_ref().to_vec(),
            Key::Ed25519(key) => key.public_key().as_ref().to_vec(),
        }
    }
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
