//! Request ids (`X-Request-Id`): taken from the request, or generated.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::model::system::{Random, RandomError};

/// The name of the header.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Generates ids: 64 random bits of the process, and a keyed hash (`SipHash`) of a counter, from which no caller can
/// count the requests of others. Not secret. Needs no system call per request.
#[derive(Debug)]
pub struct RequestIds {
    process: u64,
    count: AtomicU64,
    key: RandomState,
}

impl RequestIds {
    /// Creates a generator.
    ///
    /// # Errors
    /// If the source of randomness fails.
    pub fn new(random: &dyn Random) -> Result<Self, RandomError> {
        let mut process = [0; 8];
        random.fill(&mut process)?;
        Ok(Self { process: u64::from_be_bytes(process), count: AtomicU64::new(0), key: RandomState::new() })
    }

    /// The id of the request if it is 1 to 128 visible ASCII characters; else a generated one.
    pub fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let theirs = headers.get(X_REQUEST_ID).filter(|id| is_request_id(id.as_bytes()));
        theirs.cloned().unwrap_or_else(|| self.ours())
    }

    fn ours(&self) -> HeaderValue {
        let number = self.key.hash_one(self.count.fetch_add(1, Ordering::Relaxed));
        let id = (u128::from(self.process) << 64) | u128::from(number);
        let mut text = [0; uuid::fmt::Simple::LENGTH];
        let text = uuid::Uuid::from_u128(id).as_simple().encode_lower(&mut text);
        HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("-"))
    }
}

/// Whether this can be the id of a request: 1 to 128 visible ASCII characters.
pub fn is_request_id(id: &[u8]) -> bool {
    (1..=128).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{RequestIds, is_request_id};
    use crate::model::system::SystemRandom;

    #[test]
    fn generated_ids_do_not_count_requests() {
        let ids = RequestIds::new(&SystemRandom).unwrap();
        let ids: Vec<_> = (0..1_000).map(|_| ids.ours().to_str().unwrap().to_owned()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        let numbers: Vec<_> = ids.iter().map(|id| u64::from_str_radix(&id[16..], 16).unwrap()).collect();
        assert!(numbers.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1_000), "{numbers:?}");
        assert!(ids.iter().all(|id| id.len() == 32 && id[..16] == ids[0][..16]));
    }

    #[test]
    fn only_short_visible_ids_are_echoed() {
        assert!(is_request_id(b"a") && is_request_id(&[b'~'; 128]));
        for bad in [&b""[..], &[b'a'; 129], b"a b", "ä".as_bytes()] {
            assert!(!is_request_id(bad));
        }
    }
}
