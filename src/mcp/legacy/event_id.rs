//! Event ids: the positions in a session's streams, encrypted and authenticated (ChaCha20-Poly1305, RFC 8439), so that a
//! client can neither read a revision from one nor forge one.
//!
//! An id is the base64url encoding of a random nonce, the encrypted [`Position`] and the authentication tag. Each session
//! has a key of its own. The tag covers the timeline of the database as well: after a restoration the same revisions are
//! other changes, so that a position of before it must not be read. All ids have the same length.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::http::cursor::CursorSigner;
use crate::model::feed::TimelineId;
use crate::model::ids::SessionUid;
use crate::model::label::LabelsDigest;
use crate::model::scope::Revision;
use crate::model::system::Random;

/// The name under which the keys are derived from the gateway's secret.
const KEY: &str = "session event ids";
/// The bytes of an encoded position.
const POSITION: usize = 32;
/// Number of nonces that are drawn at once, since each time is a system call. The streams of a session share its key, and draw
/// nonces of their own.
const NONCES: usize = 8;

/// The position after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The number of the stream in its session.
    pub stream: i64,
    /// Everything up to this revision was sent.
    pub watermark: Revision,
    /// The number of the event in its stream.
    pub event: u64,
    /// The labels of the caller that it was sent to.
    pub labels: LabelsDigest,
}

/// Seals and opens the event ids of one session, on one timeline of the database.
pub struct EventIds {
    key: [u8; 32],
    timeline: TimelineId,
    /// Random nonces, and how many of them are unused.
    nonces: [[u8; NONCE_LEN]; NONCES],
    unused: usize,
}

impl EventIds {
    /// For a session, with its key derived from the gateway's secret.
    pub fn new(signer: &CursorSigner, session: SessionUid, timeline: TimelineId) -> Self {
        Self { key: signer.key(KEY, session.0), timeline, nonces: Default::default(), unused: 0 }
    }

    /// The id of an event; `None` if the random source fails.
    pub fn seal(&mut self, position: Position, random: &dyn Random) -> Option<String> {
        let nonce = self.nonce(random)?;
        let mut sealed = position.to_bytes();
        let tag = self
            .cipher()?
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(self.timeline.as_bytes()),
                &mut sealed,
            )
            .ok()?;
        Some(BASE64_URL_SAFE_NO_PAD.encode([&nonce[..], &sealed, tag.as_ref()].concat()))
    }

    /// The position in an id of this session and timeline; `None` for any other text.
    pub fn open(&self, id: &str) -> Option<Position> {
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(id).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk_mut::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let position =
            self.cipher()?.open_in_place(nonce, Aad::from(self.timeline.as_bytes()), sealed).ok()?;
        Position::from_bytes(position)
    }

    /// A nonce that is not used again; `None` if the random source fails.
    fn nonce(&mut self, random: &dyn Random) -> Option<[u8; NONCE_LEN]> {
        if self.unused == 0 {
            random.fill(self.nonces.as_flattened_mut()).ok()?;
            self.unused = NONCES;
        }
        self.unused -= 1;
        self.nonces.get(self.unused).copied()
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&CHACHA20_POLY1305, &self.key).ok().map(LessSafeKey::new)
    }
}

impl Position {
    fn to_bytes(self) -> [u8; POSITION] {
        let Self { stream, watermark, event, labels } = self;
        let members = [stream.to_be_bytes(), watermark.0.to_be_bytes(), event.to_be_bytes(), labels.0];
        let mut bytes = [0; POSITION];
        bytes.copy_from_slice(members.as_flattened());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (members, []) = bytes.as_chunks::<8>() else { return None };
        let [stream, watermark, event, labels] = *members else { return None };
        Some(Self {
            stream: i64::from_be_bytes(stream),
            watermark: Revision(i64::from_be_bytes(watermark)),
            event: u64::from_be_bytes(event),
            labels: LabelsDigest(labels),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::model::system::{RandomError, SystemRandom};

    fn ids(secret: u8, session: u128) -> EventIds {
        ids_of(secret, session, TimelineId::new("server", None))
    }

    fn ids_of(secret: u8, session: u128, timeline: TimelineId) -> EventIds {
        EventIds::new(
            &CursorSigner::new(&[secret; 32]).unwrap(),
            SessionUid(Uuid::from_u128(session)),
            timeline,
        )
    }

    fn bytes(id: &str) -> Vec<u8> {
        BASE64_URL_SAFE_NO_PAD.decode(id).unwrap()
    }

    fn position(stream: i64, watermark: i64, event: u64) -> Position {
        Position { stream, watermark: Revision(watermark), event, labels: LabelsDigest(*b"8 bytes.") }
    }

    proptest! {
        #[test]
        fn id_opens_to_its_position_in_its_session_only(stream: i64, watermark: i64, event: u64, session: u128) {
            let position = position(stream, watermark, event);
            let mut own = ids(7, session);
            let id = own.seal(position, &SystemRandom).unwrap();
            prop_assert_eq!(own.open(&id), Some(position));
            prop_assert_eq!(ids(7, session ^ 1).open(&id), None);
            for other in [TimelineId::new("other", None), TimelineId::new("server", Some(Uuid::max()))] {
                prop_assert_eq!(ids_of(7, session, other).open(&id), None);
            }
            prop_assert_eq!(ids(8, session).open(&id), None);
        }

        #[test]
        fn every_flipped_bit_makes_an_id_unreadable(watermark: i64, event: u64) {
            let mut own = ids(7, 1);
            let id = own.seal(position(1, watermark, event), &SystemRandom).unwrap();
            for bit in 0..bytes(&id).len() * 8 {
                let mut other = bytes(&id);
                other[bit / 8] ^= 1 << (bit % 8);
                prop_assert_eq!(own.open(&BASE64_URL_SAFE_NO_PAD.encode(other)), None, "bit {}", bit);
            }
            for bit in 0..id.len() * 8 {
                let mut other = id.clone().into_bytes();
                other[bit / 8] ^= 1 << (bit % 8);
                if let Ok(other) = String::from_utf8(other) {
                    prop_assert_eq!(own.open(&other), None, "bit {} of the text", bit);
                }
            }
        }
    }

    #[test]
    fn ids_with_the_same_position_share_nothing() {
        let mut ids = ids(7, 1);
        let sealed = (0..1_000).map(|_| bytes(&ids.seal(position(1, 5, 0), &SystemRandom).unwrap()));
        let sealed: Vec<_> = sealed.collect();
        let length = NONCE_LEN + POSITION + CHACHA20_POLY1305.tag_len();
        assert!(sealed.iter().all(|id| id.len() == length));
        for at in 0..length {
            let values: std::collections::HashSet<_> = sealed.iter().map(|id| id[at]).collect();
            assert!(values.len() > 200, "byte {at} has only {} values", values.len());
        }
        let nonces: std::collections::HashSet<_> = sealed.iter().map(|id| &id[..NONCE_LEN]).collect();
        assert_eq!(nonces.len(), sealed.len(), "a nonce is used once");
    }

    #[test]
    fn other_texts_are_unreadable() {
        let mut ids = ids(7, 1);
        let id = ids.seal(position(1, 5, 0), &SystemRandom).unwrap();
        for other in [
            "",
            "x",
            "ä",
            "0a1b2c3d1-5-0",
            &id[1..],
            &id[..id.len() - 1],
            &format!("{id}A"),
            &format!("{id}="),
        ] {
            assert_eq!(ids.open(other), None, "{other:?}");
        }
    }

    #[test]
    fn failing_random_source_yields_no_id() {
        /// Fills with ones, then fails halfway, then fills with twos.
        #[derive(Default)]
        struct FailsOnce(AtomicU8);
        impl Random for FailsOnce {
            fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError> {
                let time = self.0.fetch_add(1, Ordering::Relaxed);
                if time == 1 {
                    let half = bytes.len() / 2;
                    bytes[..half].fill(9);
                    return Err(RandomError);
                }
                bytes.fill(time + 1);
                Ok(())
            }
        }
        let (mut ids, random) = (ids(7, 1), FailsOnce::default());
        let mut nonce = || ids.seal(position(1, 5, 0), &random).map(|id| bytes(&id)[..NONCE_LEN].to_vec());
        for _ in 0..NONCES {
            assert_eq!(nonce(), Some(vec![1; NONCE_LEN]));
        }
        assert_eq!(nonce(), None);
        assert_eq!(nonce(), Some(vec![3; NONCE_LEN]), "what was drawn halfway is not used");
    }
}
