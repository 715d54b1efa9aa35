//! Reads a chunked event stream as it arrives.

use serde_json::Value;

/// The method of an event about a changed resource.
const UPDATED: &str = "notifications/resources/updated";

/// What an event says that matters here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A resource changed.
    Updated(String),
    /// Anything else.
    Other,
}

/// The bytes of a stream that are not decoded yet, and what it said about resuming.
#[derive(Default)]
pub(crate) struct EventReader {
    coded: Vec<u8>,
    text: Vec<u8>,
    /// The id of the last event that had one.
    pub(crate) last_id: Option<String>,
    /// The last delay after which a client may reconnect, in milliseconds.
    pub(crate) retry: Option<u64>,
    /// Whether the stream ended as its encoding says.
    pub(crate) ended: bool,
}

impl EventReader {
    /// Reads the next stream, which continues this one.
    pub(crate) fn begin_again(&mut self) {
        let (last_id, retry) = (self.last_id.take(), self.retry);
        *self = Self { last_id, retry, ..Self::default() };
    }

    /// Takes received bytes; returns the events that they complete.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Vec<Said> {
        self.coded.extend_from_slice(bytes);
        while let Some((whole, chunk)) = first_chunk(&self.coded) {
            self.ended |= chunk.is_empty();
            self.text.extend_from_slice(chunk);
            self.coded.drain(..whole);
        }
        let mut said = Vec::new();
        while let Some(end) = self.text.windows(2).position(|window| window == b"\n\n") {
            let event: Vec<u8> = self.text.drain(..end + 2).collect();
            said.extend(self.event(&String::from_utf8_lossy(&event)));
        }
        said
    }

    fn event(&mut self, event: &str) -> Option<Said> {
        let mut said = None;
        for (field, value) in event.lines().filter_map(|line| line.split_once(':')) {
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => self.last_id = Some(value.to_owned()),
                "retry" => self.retry = value.parse().ok(),
                "data" => said = Some(message(value)),
                _ => {}
            }
        }
        said
    }
}

fn message(data: &str) -> Said {
    let message: Value = serde_json::from_str(data).unwrap_or_default();
    match message["params"]["uri"].as_str() {
        Some(uri) if message["method"] == UPDATED => Said::Updated(uri.to_owned()),
        _ => Said::Other,
    }
}

/// The first chunk, and how many bytes it takes with its framing; `None` while it is incomplete.
fn first_chunk(coded: &[u8]) -> Option<(usize, &[u8])> {
    let line = coded.windows(2).position(|window| window == b"\r\n")?;
    let size = usize::from_str_radix(std::str::from_utf8(&coded[..line]).ok()?.trim(), 16).ok()?;
    let (begin, whole) = (line + 2, line + 2 + size + 2);
    (coded.len() >= whole).then(|| (whole, &coded[begin..begin + size]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_the_bytes_are_cut() {
        let events = "id: 1-2\nretry: 1000\ndata: \n\n:\n\nid: 1-3\ndata: {\"method\":\
            \"notifications/resources/updated\",\"params\":{\"uri\":\"x:7\"}}\n\n";
        let (front, back) = events.split_at(70);
        let stream = format!("{:x}\r\n{front}\r\n{:x}\r\n{back}\r\n0\r\n\r\n", front.len(), back.len());
        for step in [1, 7, 1000] {
            let mut reader = EventReader::default();
            let said: Vec<Said> =
                stream.as_bytes().chunks(step).flat_map(|bytes| reader.read(bytes)).collect();
            assert_eq!(said, [Said::Other, Said::Updated("x:7".to_owned())]);
            assert_eq!(
                (reader.last_id.as_deref(), reader.retry, reader.ended),
                (Some("1-3"), Some(1000), true)
            );
        }
    }
}
