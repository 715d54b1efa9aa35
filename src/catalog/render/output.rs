//! The output of a render: a string that does not grow beyond its limit.

use std::io::{Error, ErrorKind, Result, Write};

/// The maximum initial capacity; a longer text doubles it.
const MAX_ROOM: usize = 8 << 10;

/// Text of a limited length.
#[derive(Debug)]
pub(super) struct BoundedText {
    text: String,
    limit: usize,
    full: bool,
}

impl BoundedText {
    /// An empty output, with capacity for `expected` bytes within the maximum.
    pub(super) fn new(limit: usize, expected: u64) -> Self {
        let room = usize::try_from(expected).unwrap_or(usize::MAX).min(limit).min(MAX_ROOM);
        Self { text: String::with_capacity(room), limit, full: false }
    }

    /// Whether something was refused.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        // The engine writes whole strings, so that a piece never ends within a character.
        let piece = str::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
        if piece.len() > self.limit - self.text.len() {
            self.full = true;
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.text.push_str(piece);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
