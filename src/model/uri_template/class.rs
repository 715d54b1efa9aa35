//! Sets of ASCII characters, and the ones RFC 3986 names.

/// A set of ASCII characters.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Class(u128);

impl Class {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALPHANUMERIC: Self =
        Self::of(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
    pub(super) const UNRESERVED: Self = Self::ALPHANUMERIC.and(Self::of(b"-._~"));
    /// What RFC 3986 itself gives a meaning: these stand raw in no value but a reserved one.
    pub(super) const STRUCTURE: Self = Self::of(b"/?#[]");
    pub(super) const RESERVED: Self = Self::STRUCTURE.and(Self::of(b":@!$&'()*+,;="));
    /// What a segment of a path may hold raw.
    pub(super) const SEGMENT: Self = Self::UNRESERVED.and(Self::RESERVED).without(Self::STRUCTURE);
    /// What a percent-encoded octet is written with.
    pub(super) const ENCODED: Self = Self::of(b"%0123456789ABCDEFabcdef");

    /// The set of these characters. What is not ASCII is left out.
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

    /// The characters of either.
    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The characters that `other` has not.
    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The characters of both.
    pub(super) const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub(super) const fn contains(self, byte: u8) -> bool {
        byte.is_ascii() && self.0 >> byte & 1 == 1
    }
}
