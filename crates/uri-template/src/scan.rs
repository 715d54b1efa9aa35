//! The only functions that search a URI. Each reads a byte once; tests count the bytes.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::class::Class;

/// The position of the first byte of the class.
pub(super) fn first(text: &str, class: Class) -> Option<usize> {
    if class.is_empty() {
        return None;
    }
    let found = text.bytes().position(|byte| class.contains(byte));
    count(found.unwrap_or(text.len()));
    found
}

/// The position of the last byte of the class.
pub(super) fn last(text: &str, class: Class) -> Option<usize> {
    let found = text.bytes().rposition(|byte| class.contains(byte));
    count(text.len() - found.unwrap_or_default());
    found
}

/// Splits a text around `literal`, of which the byte `at` is the byte `position` of the text.
pub(super) fn split_around<'t>(
    text: &'t str,
    position: usize,
    literal: &str,
    at: usize,
) -> Option<(&'t str, &'t str)> {
    count(literal.len());
    let (before, after) = text.split_at_checked(position)?;
    let (start, end) = literal.split_at_checked(at)?;
    Some((before.strip_suffix(start)?, after.strip_prefix(end)?))
}

/// Whether a text consists of characters of the class and of percent-encoded octets.
pub(super) fn is_encoded(text: &str, class: Class) -> bool {
    count(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let fits = match byte {
            b'%' => (0..2).all(|_| bytes.next().is_some_and(|digit| digit.is_ascii_hexdigit())),
            _ => class.contains(byte),
        };
        if !fits {
            return false;
        }
    }
    true
}

/// Whether the path of a URI has a segment `..`, however it is encoded.
pub(super) fn has_dot_dot_segment(uri: &str) -> bool {
    count(uri.len());
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let path = path.split_once(':').map_or(path, |(_, path)| path);
    path.split('/').any(|segment| {
        // Its longest encoding is `%2E%2E`.
        (2..=6).contains(&segment.len()) && Cow::from(percent_decode_str(segment)).as_ref() == b".."
    })
}

/// Compares two names.
pub(super) fn compare(one: &str, other: &str) -> std::cmp::Ordering {
    count(one.len().min(other.len()));
    one.cmp(other)
}

#[cfg(test)]
thread_local! {
    /// How many bytes this thread has read.
    pub(super) static BYTES_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn count(bytes: usize) {
    BYTES_READ.set(BYTES_READ.get() + bytes);
}

#[cfg(not(test))]
const fn count(_: usize) {}
