//! The files that commands read.

use std::fs;
use std::io::{self, Read};

/// Reads a file; `-` is standard input.
pub(super) fn read(file: &str) -> io::Result<Vec<u8>> {
    if file != "-" {
        return fs::read(file);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}
