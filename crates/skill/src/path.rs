//! The path of a skill and of a file in one, and how they are written in a URI.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::PathError;

/// The scheme of the URIs of skills.
pub const SCHEME: &str = "skill";
/// The maximum length of a path in bytes: with both percent-encoded, a URI has at most 1,600.
pub const MAX_PATH_BYTES: usize = 255;

/// The characters of a segment that a URI has percent-encoded: all but `pchar` of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// The path of a skill among those of a server, such as `acme/refunds`: the folders above it and its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SkillPath(String);

/// The path of a file in a skill, such as `references/policy.md`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(String);

impl SkillPath {
    /// Parses a path.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn parse(text: &str) -> Result<Self, PathError> {
        check_segments(text)?;
        if !text.rsplit('/').next().is_some_and(is_name) {
            return Err(PathError::Name);
        }
        if !text.split('/').next().is_some_and(is_authority) {
            return Err(PathError::Authority);
        }
        Ok(Self(text.to_owned()))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the skill: the last segment.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// The URI of the folder with a slash at its end, such as `skill://acme/refunds/`, to which a file's
    /// [`uri_path`](FilePath::uri_path) is appended.
    pub fn root_uri(&self) -> String {
        format!("{SCHEME}://{}/", encoded(&self.0))
    }
}

impl FilePath {
    /// Parses a path.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn parse(text: &str) -> Result<Self, PathError> {
        check_segments(text)?;
        Ok(Self(text.to_owned()))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path as a relative reference: percent-encoded.
    pub fn uri_path(&self) -> String {
        encoded(&self.0)
    }
}

/// The encoded path of a URI, its authority included, as those of skills are written: what a reader may take for the same path
/// is the same text. Without empty segments and `.`, with `..` resolved, the authority in lower case, and those characters
/// percent-encoded that skills have so.
pub fn normal_uri_path(path: &str) -> String {
    let mut segments: Vec<String> = Vec::new();
    for segment in path.split('/') {
        match percent_decode_str(segment).decode_utf8().as_deref() {
            Ok("" | ".") => {}
            // Never above the authority (RFC 3986, section 5.2.4).
            Ok("..") => segments.truncate(segments.len().saturating_sub(1).max(1)),
            Ok(authority) if segments.is_empty() => segments.push(encoded(&authority.to_ascii_lowercase())),
            Ok(name) => segments.push(utf8_percent_encode(name, ENCODED).to_string()),
            Err(_) => segments.push(segment.to_owned()),
        }
    }
    segments.join("/")
}

impl fmt::Display for SkillPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn encoded(path: &str) -> String {
    let segments = path.split('/').map(|segment| utf8_percent_encode(segment, ENCODED).to_string());
    segments.collect::<Vec<_>>().join("/")
}

/// Whether a text may name a skill: `^[a-z0-9]+(-[a-z0-9]+)*$`, at most 64 characters.
pub(crate) fn is_name(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    text.len() <= 64 && text.split('-').all(is_word)
}

/// Whether a segment may be the authority of a URI: lower case, since schemes and hosts are compared without case.
fn is_authority(segment: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    segment.bytes().all(allowed)
}

/// Whether a character formats bidirectional text, so that a path could be shown as another.
fn is_bidi_formatting(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Checks what paths of skills, files and directories have in common.
pub(crate) fn check_segments(path: &str) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    if path.len() > MAX_PATH_BYTES {
        return Err(PathError::TooLong);
    }
    if path.contains('\\') {
        return Err(PathError::Backslash);
    }
    let is_drive = matches!(path.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic());
    if path.starts_with('/') || is_drive {
        return Err(PathError::Absolute);
    }
    if path.contains(|character: char| character.is_control() || is_bidi_formatting(character)) {
        return Err(PathError::Control);
    }
    for segment in path.split('/') {
        match segment {
            "" => return Err(PathError::EmptySegment),
            "." | ".." => return Err(PathError::Dots),
            _ => {}
        }
    }
    Ok(())
}
