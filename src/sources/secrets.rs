//! The encryption of secrets at rest: AES-256-GCM under the keys of a file, with a random nonce each. What is encrypted is
//! bound to its owner's UUID, its name and the id of its key: a ciphertext that is moved elsewhere does not decrypt.
//!
//! The file is read at each use, so that a new key takes effect without a restart.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use secrecy::zeroize::Zeroizing;
use uuid::Uuid;

use crate::model::audit::digest::Digest;
use crate::model::connection::Sealed;
use crate::model::fault::Fault;
use crate::model::system::{Random, RandomError};

/// The length of a key in bytes.
pub const KEY_BYTES: usize = 32;
/// The maximum number of keys in a file.
const MAX_KEYS: usize = 16;
/// The maximum size of a file of keys.
const MAX_BYTES: u64 = 4 << 10;

/// Why there is no key to encrypt or decrypt with.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// No file is configured.
    #[error(
        "sources.key_file is not set: secrets of connections need a file with a key, one base64 key of 32 bytes a \
         line; create one with: openssl rand -base64 32 > sources.key"
    )]
    NotSet,
    /// The file cannot be read.
    #[error("sources.key_file: {0}: {1}")]
    Unreadable(String, #[source] std::io::Error),
    /// A line is not a key.
    #[error("sources.key_file: {0}:{1}: not a key; expected 32 bytes in base64")]
    NotAKey(String, usize),
    /// The file has no key, or too many.
    #[error("sources.key_file: {0} holds {1} keys; expected 1 to {MAX_KEYS}, one a line")]
    Count(String, usize),
    /// A secret is encrypted under another key.
    #[error(
        "sources.key_file: {file} does not hold the key {key}, which {secret} is encrypted under; add that key to the \
         file"
    )]
    Missing {
        /// The file.
        file: String,
        /// The id of the key.
        key: String,
        /// The secret, as `the secret headers of the connection weather`.
        secret: String,
    },
}

/// Why a value is not decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The file does not hold the key.
    #[error("it is encrypted under the key {0}, which sources.key_file does not hold")]
    UnknownKey(String),
    /// The ciphertext was changed, or moved from elsewhere.
    #[error("what is stored of it was not encrypted for it")]
    Tampered,
}

impl From<KeyFileError> for Fault {
    fn from(error: KeyFileError) -> Self {
        Self::invalid_params(format!("secrets: {error}"))
    }
}

/// The file of the keys.
#[derive(Debug, Clone)]
pub struct KeyFile(Option<PathBuf>);

impl KeyFile {
    /// The configured file, if any.
    pub fn new(path: Option<PathBuf>) -> Self {
        Self(path)
    }

    /// The path, as in messages.
    pub fn name(&self) -> String {
        self.0.as_deref().map(|path| path.display().to_string()).unwrap_or_default()
    }

    /// Reads the keys.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub async fn read(&self) -> Result<KeyRing, KeyFileError> {
        let path = self.0.clone().ok_or(KeyFileError::NotSet)?;
        let name = self.name();
        let read = tokio::task::spawn_blocking(move || KeyRing::read(&path)).await;
        read.unwrap_or_else(|error| Err(KeyFileError::Unreadable(name, std::io::Error::other(error))))
    }
}

/// The keys of a file. The first encrypts, all decrypt.
pub struct KeyRing {
    first: Key,
    others: Vec<Key>,
}

struct Key {
    id: String,
    key: LessSafeKey,
}

impl Key {
    fn new(bytes: &[u8]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).ok()?);
        // A part of a hash over more than the key: it identifies the key and confirms nothing else.
        let mut id = Digest::of(&[b"waggle key id\0", bytes].concat()).to_string();
        id.truncate(16);
        Some(Self { id, key })
    }
}

impl KeyRing {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let name = || path.display().to_string();
        let mut text = Zeroizing::new(String::new());
        let opened = fs::File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
        opened.map_err(|error| KeyFileError::Unreadable(name(), error))?;
        Self::parse(&text, &name())
    }

    fn parse(text: &str, name: &str) -> Result<Self, KeyFileError> {
        let lines = text.lines().map(str::trim).zip(1..);
        let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let keys = lines.map(|(line, number)| {
            let bytes = STANDARD.decode(line).map(Zeroizing::new).ok();
            let key = bytes.and_then(|bytes| Key::new(&bytes));
            key.ok_or_else(|| KeyFileError::NotAKey(name.to_owned(), number))
        });
        let mut keys = keys.collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() || keys.len() > MAX_KEYS {
            return Err(KeyFileError::Count(name.to_owned(), keys.len()));
        }
        let first = keys.remove(0);
        Ok(Self { first, others: keys })
    }

    /// The line of a key in a file.
    pub fn line(key: &[u8; KEY_BYTES]) -> String {
        STANDARD.encode(key) + "\n"
    }

    /// The id of the key that encrypts.
    pub fn first(&self) -> &str {
        &self.first.id
    }

    /// The ids of all keys.
    pub fn ids(&self) -> Vec<String> {
        std::iter::once(&self.first).chain(&self.others).map(|key| key.id.clone()).collect()
    }

    /// Encrypts a value of an owner.
    ///
    /// # Errors
    /// [`RandomError`].
    pub fn seal(
        &self,
        owner: Uuid,
        name: &str,
        value: &[u8],
        random: &dyn Random,
    ) -> Result<Sealed, RandomError> {
        let Key { id, key } = &self.first;
        let mut nonce = [0; NONCE_LEN];
        random.fill(&mut nonce)?;
        let mut sealed = Zeroizing::new(value.to_vec());
        let (nonce_of_call, bound) =
            (Nonce::assume_unique_for_key(nonce), Aad::from(bound_to(owner, name, id)));
        // Fails only for values of many gigabytes.
        let tag =
            key.seal_in_place_separate_tag(nonce_of_call, bound, &mut sealed).map_err(|_| RandomError)?;
        let bytes = [nonce.as_slice(), &sealed, tag.as_ref()].concat();
        Ok(Sealed { key: id.clone(), bytes })
    }

    /// Decrypts a value of an owner.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self, owner: Uuid, name: &str, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let known = std::iter::once(&self.first).chain(&self.others).find(|key| key.id == sealed.key);
        let Key { id, key } = known.ok_or_else(|| OpenError::UnknownKey(sealed.key.clone()))?;
        let (nonce, ciphertext) = sealed.bytes.split_first_chunk().ok_or(OpenError::Tampered)?;
        let mut value = Zeroizing::new(ciphertext.to_vec());
        let bound = Aad::from(bound_to(owner, name, id));
        let opened = key.open_in_place(Nonce::assume_unique_for_key(*nonce), bound, &mut value);
        let length = opened.map_err(|_| OpenError::Tampered)?.len();
        value.truncate(length);
        Ok(value)
    }
}

/// What a ciphertext is bound to. The lengths of the first and the last part are fixed.
fn bound_to(owner: Uuid, name: &str, key: &str) -> Vec<u8> {
    [owner.as_bytes().as_slice(), name.as_bytes(), key.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{KEY_BYTES, KeyFileError, KeyRing, OpenError};
    use crate::model::system::{Random, RandomError, SystemRandom};

    const OWNER: Uuid = Uuid::from_u128(7);

    fn ring(keys: &[u8]) -> KeyRing {
        let lines: String = keys.iter().map(|byte| KeyRing::line(&[*byte; KEY_BYTES])).collect();
        KeyRing::parse(&lines, "file").ok().unwrap()
    }

    fn refusal(text: &str) -> String {
        KeyRing::parse(text, "f").map(|_| ()).map_err(|error: KeyFileError| error.to_string()).unwrap_err()
    }

    #[test]
    fn first_key_encrypts_and_all_decrypt() {
        let [old, both, new] = [ring(&[1]), ring(&[2, 1]), ring(&[2])];
        let of_old = old.seal(OWNER, "a", b"secret", &SystemRandom).unwrap();
        let of_new = both.seal(OWNER, "a", b"secret", &SystemRandom).unwrap();
        assert_eq!((of_old.key.as_str(), of_new.key.as_str()), (old.first(), new.first()));
        for sealed in [&of_old, &of_new] {
            assert_eq!(both.open(OWNER, "a", sealed).unwrap().as_slice(), b"secret");
            assert!(!sealed.bytes.windows(6).any(|bytes| bytes == b"secret"));
        }
        assert_eq!(new.open(OWNER, "a", &of_old), Err(OpenError::UnknownKey(old.first().to_owned())));
        assert_eq!(new.open(OWNER, "a", &of_new).unwrap().as_slice(), b"secret");
    }

    #[test]
    fn ciphertext_is_bound_to_owner_name_and_key() {
        let keys = ring(&[1, 2]);
        let sealed = keys.seal(OWNER, "a", b"secret", &SystemRandom).unwrap();
        assert_eq!(keys.open(Uuid::from_u128(8), "a", &sealed), Err(OpenError::Tampered));
        assert_eq!(keys.open(OWNER, "b", &sealed), Err(OpenError::Tampered));
        let mut of_other_key = sealed.clone();
        of_other_key.key = ring(&[2]).first().to_owned();
        assert_eq!(keys.open(OWNER, "a", &of_other_key), Err(OpenError::Tampered));
        for at in 0..sealed.bytes.len() {
            let mut changed = sealed.clone();
            changed.bytes[at] ^= 1;
            assert_eq!(keys.open(OWNER, "a", &changed), Err(OpenError::Tampered), "byte {at}");
            changed.bytes.truncate(at);
            assert_eq!(keys.open(OWNER, "a", &changed), Err(OpenError::Tampered), "{at} bytes");
        }
    }

    #[test]
    fn each_encryption_has_a_nonce_of_its_own() {
        struct Failing;
        impl Random for Failing {
            fn fill(&self, _: &mut [u8]) -> Result<(), RandomError> {
                Err(RandomError)
            }
        }
        let keys = ring(&[1]);
        let [one, other] = [0, 1].map(|_| keys.seal(OWNER, "a", b"secret", &SystemRandom).unwrap());
        assert_ne!(one.bytes[..12], other.bytes[..12]);
        assert_ne!(one.bytes[12..], other.bytes[12..]);
        assert_eq!(keys.seal(OWNER, "a", b"secret", &Failing), Err(RandomError));
    }

    #[test]
    fn unusable_key_files_are_refused_without_their_content() {
        let good = KeyRing::line(&[1; KEY_BYTES]);
        assert!(KeyRing::parse(&format!("# comment\n\n  {good}"), "f").is_ok());
        let count = |number| format!("sources.key_file: f holds {number} keys; expected 1 to 16, one a line");
        assert_eq!(refusal(""), count(0));
        assert_eq!(refusal(&good.repeat(17)), count(17));
        let not_a_key = |line| format!("sources.key_file: f:{line}: not a key; expected 32 bytes in base64");
        assert_eq!(refusal("hunter2"), not_a_key(1));
        assert_eq!(refusal(&format!("{good}{}", &good[4..])), not_a_key(2));
        assert!(matches!(
            KeyRing::read(std::path::Path::new("/nonexistent/key")),
            Err(KeyFileError::Unreadable(..))
        ));
    }
}
