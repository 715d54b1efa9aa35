//! Reads server-sent events.

use serde_json::Value;

/// An open stream.
#[derive(Debug)]
pub(crate) struct Events {
    response: reqwest::Response,
    unread: Vec<u8>,
}

/// One event; comments are skipped.
#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    /// Null for an event without data, which only sets the cursor.
    pub(crate) message: Value,
}

impl Events {
    pub(crate) fn of(response: reqwest::Response) -> Self {
        Self { response, unread: Vec::new() }
    }

    /// The next event; `None` at the end of the stream, for any reason.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                if let Some(event) = parse(std::str::from_utf8(&block).unwrap()) {
                    return Some(event);
                }
            }
            let chunk = self.response.chunk().await.ok().flatten()?;
            self.unread.extend_from_slice(&chunk);
        }
    }
}

/// An event from its lines; `None` if they contain neither an id nor data.
pub(crate) fn parse(block: &str) -> Option<Event> {
    let mut event = Event::default();
    for line in block.lines() {
        match line.split_once(": ") {
            Some(("id", id)) => event.id = Some(id.to_owned()),
            Some(("data", data)) if !data.is_empty() => event.message = serde_json::from_str(data).unwrap(),
            _ => {}
        }
    }
    (event.id.is_some() || !event.message.is_null()).then_some(event)
}
