//! Finds the statements in the messages that a client sends to PostgreSQL.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The statements executed on all connections, in order; each takes a round trip.
#[derive(Clone, Default)]
pub(crate) struct StatementLog(Arc<Mutex<Vec<String>>>);

impl StatementLog {
    /// Removes the statements so far.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// A parser of the messages of a new connection.
    pub(super) fn connection(&self) -> Messages {
        Messages { log: self.clone(), unread: Vec::new(), started: false, prepared: HashMap::new() }
    }
}

/// The messages of one connection.
pub(super) struct Messages {
    log: StatementLog,
    unread: Vec<u8>,
    started: bool,
    /// The texts of prepared statements by name.
    prepared: HashMap<String, String>,
}

impl Messages {
    pub(super) fn read(&mut self, sent: &[u8]) {
        self.unread.extend_from_slice(sent);
        // The first message has no type.
        while let Some(header) = self.unread.get(usize::from(self.started)..).and_then(<[u8]>::first_chunk) {
            let end = usize::from(self.started) + usize::try_from(u32::from_be_bytes(*header)).unwrap();
            if self.unread.len() < end {
                return;
            }
            let message: Vec<_> = self.unread.drain(..end).collect();
            if std::mem::replace(&mut self.started, true) {
                self.message(message[0], &message[5..]);
            }
        }
    }

    fn message(&mut self, kind: u8, body: &[u8]) {
        let mut texts = body.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
        let (first, second) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        let executed = match kind {
            // Parse: a name and a text.
            b'P' => {
                self.prepared.insert(first, second);
                return;
            }
            // Bind: a portal and a name.
            b'B' => self.prepared[&second].clone(),
            // A query without parameters.
            b'Q' => first,
            _ => return,
        };
        self.log.0.lock().unwrap().push(executed);
    }
}
