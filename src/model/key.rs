//! Keys: issued ones without their secret, and secret keys: format, checksum, and the hash under which they are stored.

use std::fmt;

use rand::CryptoRng;
use secrecy::zeroize::Zeroizing;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::caller::KeyScope;
use super::client_address::Networks;
use super::ids::{AgentId, KeyId, PrincipalId, TenantId};
use super::label::Labels;
use super::limits::KeyLimits;
use super::scope::Revision;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const PREFIX: usize = 4;
/// 43 base62 characters have 256 bits.
const RANDOM: usize = 43;
/// Six base62 characters have the 32 bits of a CRC.
const CHECKSUM: usize = 6;
const BODY: usize = PREFIX + RANDOM;
const LENGTH: usize = BODY + CHECKSUM;
const DISPLAY: usize = 12;
/// The largest multiple of 62 that fits into a byte: larger bytes would make some characters more likely.
const FAIR_BYTES: u8 = 248;

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// A key of one agent.
    Agent,
    /// A key of a tenant, for all its agents.
    Owner,
    /// A key of the operator, for the administration of the gateway.
    Operator,
}

impl KeyKind {
    const ALL: [Self; 3] = [Self::Agent, Self::Owner, Self::Operator];

    /// The first four characters of keys of this kind.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Agent => "bak_",
            Self::Owner => "oag_",
            Self::Operator => "wag_",
        }
    }
}

/// Why a text is not a key. Does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not the prefix of any kind of key.
    #[error("does not begin with bak_, oag_ or wag_")]
    Prefix,
    /// Wrong length.
    #[error("is not {LENGTH} characters long: it was truncated or extended")]
    Length,
    /// A character outside base62.
    #[error("contains a character other than letters and digits")]
    Alphabet,
    /// The checksum does not match: a character was changed.
    #[error("does not match its checksum: a character is wrong")]
    Checksum,
}

/// A secret key: the prefix of its kind, 43 random characters, and a checksum of six characters.
///
/// It implements neither `Debug` nor `Display`, and is zeroed when dropped.
#[derive(Clone)]
pub struct SecretKey {
    kind: KeyKind,
    text: Zeroizing<[u8; LENGTH]>,
}

impl SecretKey {
    /// Generates a key of 256 random bits.
    pub fn generate(kind: KeyKind, random: &mut impl CryptoRng) -> Self {
        let mut text = Zeroizing::new([0; LENGTH]);
        text[..PREFIX].copy_from_slice(kind.prefix().as_bytes());
        fill_base62(&mut text[PREFIX..BODY], random);
        let sum = checksum(&text[..BODY]);
        text[BODY..].copy_from_slice(&sum);
        Self { kind, text }
    }

    /// Parses a key of any kind, without a lookup or an allocation.
    ///
    /// # Errors
    /// [`KeyError`]; a mistyped key fails its checksum.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let bytes = text.as_bytes();
        let kind = KeyKind::ALL
            .into_iter()
            .find(|kind| bytes.starts_with(kind.prefix().as_bytes()))
            .ok_or(KeyError::Prefix)?;
        let bytes: &[u8; LENGTH] = bytes.try_into().map_err(|_| KeyError::Length)?;
        if !bytes[PREFIX..].iter().all(u8::is_ascii_alphanumeric) {
            return Err(KeyError::Alphabet);
        }
        if checksum(&bytes[..BODY]) != bytes[BODY..] {
            return Err(KeyError::Checksum);
        }
        Ok(Self { kind, text: Zeroizing::new(*bytes) })
    }

    /// The kind of the key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The SHA-256 of the whole key, under which it is stored and looked up.
    pub fn hash(&self) -> KeyHash {
        KeyHash(Sha256::digest(self.text.as_slice()).into())
    }

    /// The first 12 characters, by which people distinguish keys. Not secret.
    pub fn display(&self) -> &str {
        ascii(&self.text[..DISPLAY])
    }

    /// The whole key, to be shown to its holder once.
    pub fn reveal(&self) -> &str {
        ascii(self.text.as_slice())
    }
}

/// The SHA-256 of a whole key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; 32]);

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({self})")
    }
}

fn fill_base62(characters: &mut [u8], random: &mut impl CryptoRng) {
    let mut pool = Zeroizing::new([0_u8; 64]);
    let mut filled = 0;
    while filled < characters.len() {
        random.fill_bytes(pool.as_mut_slice());
        for byte in pool.iter().filter(|&&byte| byte < FAIR_BYTES).take(characters.len() - filled) {
            characters[filled] = ALPHABET[usize::from(byte % 62)];
            filled += 1;
        }
    }
}

/// CRC-32 (IEEE) in base62, most significant digit first, padded with zeros.
fn checksum(body: &[u8]) -> [u8; CHECKSUM] {
    let mut rest = crc32fast::hash(body);
    let mut digits = [0; CHECKSUM];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(rest % 62) as usize];
        rest /= 62;
    }
    digits
}

/// The bytes of a key are always ASCII.
fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// An issued key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Identity of the key.
    pub uid: KeyId,
    /// Tenant of the key.
    pub tenant: TenantId,
    /// The agent that it reaches; `None` for an owner key.
    pub agent: Option<AgentId>,
    /// The first 12 characters of the key.
    pub display: String,
    /// Name for people.
    pub name: String,
    /// Permitted scopes.
    pub scopes: Vec<KeyScope>,
    /// Labels; none for an owner key, which sees everything of its tenant.
    pub labels: Labels,
    /// Limits of the key.
    pub limits: KeyLimits,
    /// Principal that acts with the key.
    pub principal: PrincipalId,
    /// The principal of the key that created or rotated it; `None` for the operator.
    pub maker: Option<PrincipalId>,
    /// The revision of the tenant's scope that last changed it.
    pub revision: Revision,
    /// Time of creation.
    pub created_at: OffsetDateTime,
    /// When it expires: the requested expiry, or when the tenant's maximum age is reached if that is earlier.
    pub expires_at: Option<OffsetDateTime>,
    /// The expiry that was requested, or that a rotation set.
    pub asked_expiry: Option<OffsetDateTime>,
    /// Networks from which it may be used.
    pub networks: Networks,
    /// When it was revoked.
    pub revoked_at: Option<OffsetDateTime>,
    /// When it was last used, with a resolution of a minute.
    pub last_used_at: Option<OffsetDateTime>,
}

impl ApiKey {
    /// Whether the key is neither revoked nor expired.
    pub fn is_active(&self, now: OffsetDateTime) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| end > now)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{SeedableRng, TryCryptoRng, TryRng};

    use super::*;

    const KNOWN: &str = "wag_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg";

    fn kinds() -> impl Strategy<Value = KeyKind> {
        prop_oneof![Just(KeyKind::Agent), Just(KeyKind::Owner), Just(KeyKind::Operator)]
    }

    fn key(kind: KeyKind, seed: u64) -> SecretKey {
        SecretKey::generate(kind, &mut StdRng::seed_from_u64(seed))
    }

    /// Returns given bytes, then zeros.
    struct Tape(Vec<u8>);

    impl TryRng for Tape {
        type Error = Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Infallible> {
            unreachable!("keys are made of bytes")
        }

        fn try_next_u64(&mut self) -> Result<u64, Infallible> {
            unreachable!("keys are made of bytes")
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
            bytes.fill(0);
            let taken = bytes.len().min(self.0.len());
            for (byte, taped) in bytes.iter_mut().zip(self.0.drain(..taken)) {
                *byte = taped;
            }
            Ok(())
        }
    }

    impl TryCryptoRng for Tape {}

    proptest! {
        #[test]
        fn generated_key_parses_to_itself(kind in kinds(), seed: u64) {
            let made = key(kind, seed);
            let read = SecretKey::parse(made.reveal()).unwrap();
            prop_assert_eq!(read.reveal(), made.reveal());
            prop_assert_eq!(read.kind(), kind);
            prop_assert_eq!(read.hash(), made.hash());
        }

        #[test]
        fn generated_key_has_the_documented_format(kind in kinds(), seed: u64) {
            let made = key(kind, seed);
            prop_assert!(made.reveal().starts_with(kind.prefix()));
            prop_assert_eq!(made.reveal().len(), 53);
            prop_assert!(made.reveal()[4..].bytes().all(|byte| ALPHABET.contains(&byte)));
            prop_assert_eq!(made.display(), &made.reveal()[..12]);
        }

        #[test]
        fn single_wrong_character_is_rejected(seed: u64, place in 4..53_usize, other in 0..62_usize) {
            let mut text = key(KeyKind::Agent, seed).reveal().as_bytes().to_vec();
            prop_assume!(text[place] != ALPHABET[other]);
            text[place] = ALPHABET[other];
            let refused = SecretKey::parse(std::str::from_utf8(&text).unwrap()).err();
            prop_assert_eq!(refused, Some(KeyError::Checksum));
        }

        #[test]
        fn swapped_neighbors_are_rejected(seed: u64, place in 4..52_usize) {
            let mut text = key(KeyKind::Owner, seed).reveal().as_bytes().to_vec();
            prop_assume!(text[place] != text[place + 1]);
            text.swap(place, place + 1);
            prop_assert!(SecretKey::parse(std::str::from_utf8(&text).unwrap()).is_err());
        }

        #[test]
        fn arbitrary_text_is_rejected_without_panic(text: String, tail in "\\PC{45,55}") {
            prop_assert!(SecretKey::parse(&text).is_err());
            prop_assert!(SecretKey::parse(&["bak_", &tail].concat()).is_err());
        }
    }

    #[test]
    fn checksum_is_crc_32_ieee_in_base62() {
        // Computed independently with the CRC-32 of zlib.
        assert_eq!(&checksum(b"123456789"), b"3jZRME");
        assert!(SecretKey::parse(&format!("{KNOWN}1wWFc0")).is_ok());
    }

    #[test]
    fn small_checksum_is_padded_with_zeros() {
        assert_eq!(&checksum(b""), b"000000");
    }

    #[test]
    fn hash_is_the_sha_256_of_the_whole_key() {
        let key = key(KeyKind::Operator, 7);
        let expected: [u8; 32] = Sha256::digest(key.reveal()).into();
        assert_eq!(key.hash(), KeyHash(expected));
    }

    #[test]
    fn biased_random_bytes_are_discarded() {
        let mut tape = vec![255, 248, 247, 61, 62];
        tape.extend([1; 59]);
        let key = SecretKey::generate(KeyKind::Agent, &mut Tape(tape));
        assert_eq!(&key.reveal()[4..8], "zz01");
    }

    #[test]
    fn discarded_random_bytes_are_replaced() {
        let key = SecretKey::generate(KeyKind::Agent, &mut Tape(vec![255; 100]));
        assert_eq!(&key.reveal()[..47], format!("bak_{}", "0".repeat(43)));
    }

    #[test]
    fn errors_are_distinguished() {
        let good = key(KeyKind::Agent, 1);
        let good = good.reveal();
        let faults = [
            String::new(),
            good.replace("bak_", "sk-_"),
            good[..52].to_owned(),
            format!("{good} "),
            format!("{}é", &good[..51]),
            format!("{}-", &good[..52]),
        ]
        .map(|text| SecretKey::parse(&text).err());
        let expected = [
            KeyError::Prefix,
            KeyError::Prefix,
            KeyError::Length,
            KeyError::Length,
            KeyError::Alphabet,
            KeyError::Alphabet,
        ]
        .map(Some);
        assert_eq!(faults, expected);
    }

    #[test]
    fn hash_is_displayed_as_hexadecimal() {
        let hash = KeyHash([0x0f; 32]);
        assert_eq!(hash.to_string(), "0f".repeat(32));
        assert_eq!(format!("{hash:?}"), format!("KeyHash({})", "0f".repeat(32)));
    }
}
