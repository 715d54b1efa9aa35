//! Writes rows in the format of a location, within bounds.

use std::borrow::Cow;

use bytes::Bytes;

use crate::error::FetchError;
use crate::location::Format;
use crate::source::Content;

/// What each row but the first counts for, besides what is written of it: about what a server sends for it.
const ROW_BYTES: u64 = 8;

/// A cell as text; `None` for null.
pub(super) type Cell<'a> = Result<Option<Cow<'a, str>>, FetchError>;

/// The content that rows become.
#[derive(Debug)]
pub(super) struct Rows {
    format: Format,
    max_bytes: u64,
    bytes: Vec<u8>,
    count: u64,
}

impl Rows {
    pub(super) fn new(format: Format, max_bytes: u64) -> Self {
        Self { format, max_bytes, bytes: Vec::new(), count: 0 }
    }

    /// How many rows to ask for: one more than allowed, which shows that there are too many.
    pub(super) fn limit(&self) -> u64 {
        match self.format {
            // The only row.
            Format::Blob => 2,
            Format::Json | Format::Csv | Format::Text => self.max_bytes / ROW_BYTES + 2,
        }
    }

    /// The header of CSV.
    pub(super) fn header<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> Result<(), FetchError> {
        self.record(names.map(|name| Ok(Some(Cow::Borrowed(name)))))?;
        self.check()
    }

    /// A row of CSV.
    pub(super) fn csv<'a>(&mut self, cells: impl Iterator<Item = Cell<'a>>) -> Result<(), FetchError> {
        self.record(cells)?;
        self.next()
    }

    /// A row as an object of JSON.
    pub(super) fn json(&mut self, object: &str) -> Result<(), FetchError> {
        self.bytes.push(if self.count == 0 { b'[' } else { b',' });
        self.bytes.extend_from_slice(object.as_bytes());
        self.next()
    }

    /// The first column of a row.
    pub(super) fn line(&mut self, text: Option<&str>) -> Result<(), FetchError> {
        if self.count > 0 {
            self.bytes.push(b'\n');
        }
        self.bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
        self.next()
    }

    /// The only column of the only row; `None` for null, which is no content.
    pub(super) fn blob(&mut self, value: Option<&[u8]>) -> Result<(), FetchError> {
        if self.count > 0 {
            return Err(FetchError::BadContent);
        }
        self.bytes.extend_from_slice(value.ok_or(FetchError::NotFound)?);
        self.next()
    }

    /// RFC 4180. Checked after each cell: a row of one long value may have it thousands of times.
    fn record<'a>(&mut self, cells: impl Iterator<Item = Cell<'a>>) -> Result<(), FetchError> {
        for (index, cell) in cells.enumerate() {
            if index > 0 {
                self.bytes.push(b',');
            }
            let cell = cell?.unwrap_or_default();
            self.check_with(cell.len())?;
            if cell.contains(['"', ',', '\r', '\n']) {
                self.bytes.push(b'"');
                self.bytes.extend_from_slice(cell.replace('"', "\"\"").as_bytes());
                self.bytes.push(b'"');
            } else {
                self.bytes.extend_from_slice(cell.as_bytes());
            }
        }
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn next(&mut self) -> Result<(), FetchError> {
        self.count += 1;
        self.check()
    }

    fn check(&self) -> Result<(), FetchError> {
        self.check_with(0)
    }

    /// Whether as many more bytes are within the bound.
    pub(super) fn check_with(&self, more: usize) -> Result<(), FetchError> {
        let length = u64::try_from(self.bytes.len().saturating_add(more)).unwrap_or(u64::MAX);
        let overhead = self.count.saturating_sub(1).saturating_mul(ROW_BYTES);
        if length.saturating_add(overhead) > self.max_bytes {
            return Err(FetchError::TooLarge);
        }
        Ok(())
    }

    /// The content of all rows.
    pub(super) fn finish(mut self) -> Result<Content, FetchError> {
        let mime_type = match self.format {
            Format::Json => {
                self.bytes.extend_from_slice(if self.count == 0 { b"[]" } else { b"]" });
                Some("application/json")
            }
            Format::Csv => Some("text/csv"),
            Format::Text => Some("text/plain"),
            Format::Blob if self.count == 0 => return Err(FetchError::NotFound),
            Format::Blob => None,
        };
        self.check()?;
        let mime_type = mime_type.map(str::to_owned);
        Ok(Content { name: None, mime_type, modified: None, bytes: Bytes::from(self.bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_too_long_is_not_completed() {
        let mut rows = Rows::new(Format::Csv, 1_000);
        let endless = std::iter::repeat_with(|| Ok(Some(Cow::Borrowed("a long value"))));
        assert_eq!(rows.csv(endless), Err(FetchError::TooLarge));
    }
}
