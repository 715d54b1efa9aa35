//! Sets of ASCII characters, and those that RFC 3986 defines.

/// A set of ASCII characters.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Class(u128);

impl Class {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALPHANUMERIC: Self =
        Self::of(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
    pub(super) const UNRESERVED: Self = Self::ALPHANUMERIC.union(Self::of(b"-._~"));
    /// The delimiters of RFC 3986's generic syntax: only a reserved value contains them unencoded.
    pub(super) const STRUCTURE: Self = Self::of(b"/?#[]");
    pub(super) const RESERVED: Self = Self::STRUCTURE.union(Self::of(b":@!$&'()*+,;="));
    /// The characters that a path segment may contain unencoded.
    pub(super) const SEGMENT: Self = Self::UNRESERVED.union(Self::RESERVED).difference(Self::STRUCTURE);
    /// The characters of a percent-encoded octet.
    pub(super) const ENCODED: Self = Self::of(b"%0123456789ABCDEFabcdef");

    /// The set of these characters. Bytes outside of ASCII are ignored.
    pub(super) const fn of(characters: &[u8]) -> Self {
        let mut set = 0;
        let mut at = 0;
        while at < characters.len() {
            if characters[at].is_ascii() {
                set |= 1 << characters[at];
            }
            at += 1;
        }
        Self(set)
    }

    /// The set of this character alone.
    pub(super) const fn only(character: char) -> Self {
        if character.is_ascii() { Self(1 << character as u32) } else { Self::NONE }
    }

    /// The characters of either set.
    pub(super) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The characters that are not in `other`.
    pub(super) const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The characters of both sets.
    pub(super) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub(super) const fn contains(self, byte: u8) -> bool {
        byte.is_ascii() && self.0 >> byte & 1 == 1
    }
}
