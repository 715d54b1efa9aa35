//! Content: immutable bytes, addressed by their hash.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// The SHA-256 of content, under which it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl ContentHash {
    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let &[high, low] = pair else { return None };
            *byte = digit(high)? << 4 | digit(low)?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Content to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewContent {
    /// Hash of the bytes.
    pub hash: ContentHash,
    /// The bytes.
    pub bytes: Bytes,
}

impl NewContent {
    /// Hashes `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { hash: ContentHash::of(&bytes), bytes }
    }
}
