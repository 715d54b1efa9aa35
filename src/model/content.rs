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

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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
