//! Cursors of pagination (`nextCursor`): a position in a list, authenticated, so that clients can neither forge nor move one.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use uuid::Uuid;

use crate::model::fault::Fault;

/// The bytes of the authentication tag: half of HMAC-SHA256.
const TAG: usize = 16;

/// The secret by which cursors are signed, and from which the keys of event ids are derived.
#[derive(Clone)]
pub struct CursorSigner(Hmac<Sha256>);

impl CursorSigner {
    /// Uses the gateway's secret.
    pub fn new(secret: &[u8]) -> Option<Self> {
        Hmac::new_from_slice(secret).ok().map(Self)
    }

    /// The cursor of `position` in the list named `list` of the object `uid`.
    pub fn sign(&self, list: &str, uid: Uuid, position: &str) -> String {
        let mut bytes = self.tag(list, uid, position.as_bytes()).to_vec();
        bytes.extend_from_slice(position.as_bytes());
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Decodes the position in a cursor of this list.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] for any other text, including a cursor of another list or object.
    pub fn verify(&self, list: &str, uid: Uuid, cursor: &str) -> Result<String, Fault> {
        self.verified(list, uid, cursor)
            .ok_or_else(|| Fault::invalid_params("cursor is not valid for this list"))
    }

    fn verified(&self, list: &str, uid: Uuid, cursor: &str) -> Option<String> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (tag, position) = bytes.split_at_checked(TAG)?;
        let same = subtle::ConstantTimeEq::ct_eq(tag, self.tag(list, uid, position).as_slice());
        if bool::from(same) { String::from_utf8(position.to_vec()).ok() } else { None }
    }

    /// A key for something else of the object `uid` that is encrypted. `name` is not that of a list.
    pub fn key(&self, name: &str, uid: Uuid) -> [u8; 32] {
        self.mac(name, uid).finalize().into_bytes().into()
    }

    fn mac(&self, name: &str, uid: Uuid) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(name.as_bytes());
        mac.update(&[0]);
        mac.update(uid.as_bytes());
        mac
    }

    fn tag(&self, list: &str, uid: Uuid, position: &[u8]) -> [u8; TAG] {
        let mut mac = self.mac(list, uid);
        mac.update(position);
        let whole: [u8; 32] = mac.finalize().into_bytes().into();
        let mut tag = [0; TAG];
        tag.copy_from_slice(&whole[..TAG]);
        tag
    }
}

impl std::fmt::Debug for CursorSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CursorSigner").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{BASE64_URL_SAFE_NO_PAD, CursorSigner, Engine, Uuid};

    #[test]
    fn every_flipped_bit_of_a_cursor_is_noticed() {
        let cursors = CursorSigner::new(&[7; 32]).unwrap();
        let uid = Uuid::from_u128(1);
        let cursor = cursors.sign("resources", uid, "file:///a/ü");
        assert_eq!(cursors.verify("resources", uid, &cursor).unwrap(), "file:///a/ü");
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&cursor).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let other = BASE64_URL_SAFE_NO_PAD.encode(other);
            assert!(cursors.verify("resources", uid, &other).is_err(), "bit {bit}");
        }
        for bit in 0..cursor.len() * 8 {
            let mut other = cursor.clone().into_bytes();
            other[bit / 8] ^= 1 << (bit % 8);
            if let Ok(other) = String::from_utf8(other) {
                assert!(cursors.verify("resources", uid, &other).is_err(), "bit {bit} of the text");
            }
        }
    }

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let cursors = CursorSigner::new(&[7; 32]).unwrap();
        let cursor = cursors.sign("resources", Uuid::from_u128(1), "a:b");
        assert!(cursors.verify("resources", Uuid::from_u128(2), &cursor).is_err());
        assert!(cursors.verify("prompts", Uuid::from_u128(1), &cursor).is_err());
        assert!(
            CursorSigner::new(&[8; 32]).unwrap().verify("resources", Uuid::from_u128(1), &cursor).is_err()
        );
        assert!(cursors.verify("resources", Uuid::from_u128(1), "").is_err());
    }
}
