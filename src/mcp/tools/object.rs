//! Results that are objects: pages of definitions in the shapes of MCP, as JSON of a bounded length.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::mcp::definition::Definitions;
use crate::model::fault::Fault;

/// The bytes of an object besides its definitions and its cursor: more than the names of its members take.
const OBJECT_OVERHEAD: usize = 128;

/// A page of definitions of one or more lists that are read one after the other.
#[derive(Debug)]
pub(super) struct ObjectPage {
    /// The lists, each with the name of its member and its definitions as JSON.
    lists: Vec<(&'static str, Vec<u8>)>,
    /// The position of the last definition.
    last: Option<String>,
    /// Whether there are more definitions.
    more: bool,
    len: usize,
    most: usize,
    bytes: usize,
    most_bytes: usize,
}

impl ObjectPage {
    /// An empty page of at most `most` definitions that take at most `most_bytes`, or of one definition.
    pub(super) fn new(most: usize, most_bytes: usize) -> Self {
        let lists = Vec::new();
        Self { lists, last: None, more: false, len: 0, most, bytes: OBJECT_OVERHEAD, most_bytes }
    }

    /// Begins a list.
    pub(super) fn list(&mut self, member: &'static str) {
        self.lists.push((member, Vec::new()));
    }

    /// Adds definitions to the last list, each with its position, as far as they fit.
    pub(super) fn add_all<T>(&mut self, items: &[T], position: impl Fn(&T) -> String) -> Result<(), Fault>
    where
        for<'a> Definitions<'a, T>: Serialize,
    {
        for item in items {
            if self.more || !self.add(item, position(item))? {
                self.more = true;
                break;
            }
        }
        Ok(())
    }

    /// Records that there are more definitions than those that were to be added.
    pub(super) fn ends_early(&mut self) {
        self.more = true;
    }

    /// Adds a definition to the last list; false if it does not fit.
    fn add<T>(&mut self, item: &T, position: String) -> Result<bool, Fault>
    where
        for<'a> Definitions<'a, T>: Serialize,
    {
        let json =
            serde_json::to_vec(&Definitions(std::slice::from_ref(item))).map_err(Fault::cannot_encode)?;
        let Some((_, list)) = self.lists.last_mut() else { return Ok(false) };
        // Base64 of the position and a tag of 16 bytes.
        let cursor = (position.len() + 18) / 3 * 4;
        if self.len == self.most || self.len > 0 && self.bytes + json.len() + cursor > self.most_bytes {
            return Ok(false);
        }
        // Without the brackets of the list of one.
        let json = json.get(1..json.len() - 1).unwrap_or_default();
        if !list.is_empty() {
            list.push(b',');
        }
        list.extend_from_slice(json);
        self.bytes += json.len() + 1;
        self.len += 1;
        self.last = Some(position);
        Ok(true)
    }

    /// The position of the last definition, if there are more.
    pub(super) fn next(&self) -> Option<&str> {
        self.last.as_deref().filter(|_| self.more)
    }

    /// The object, with the cursor of the next page.
    pub(super) fn into_json(self, next_cursor: Option<&str>) -> Result<Box<RawValue>, Fault> {
        let mut out = String::with_capacity(self.bytes + next_cursor.map_or(0, str::len));
        for (member, list) in self.lists {
            out.push_str(if out.is_empty() { "{\"" } else { ",\"" });
            out.push_str(member);
            out.push_str("\":[");
            out.push_str(&String::from_utf8(list).map_err(Fault::cannot_encode)?);
            out.push(']');
        }
        if let Some(cursor) = next_cursor {
            // Base64, which JSON does not escape.
            out.push_str(",\"nextCursor\":\"");
            out.push_str(cursor);
            out.push('"');
        }
        out.push('}');
        RawValue::from_string(out).map_err(Fault::cannot_encode)
    }
}
