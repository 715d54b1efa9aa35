//! Answers other than one result: an error, and the answers to a batch.

use bytes::Bytes;
use serde_json::Value;

use super::envelope::{COPIED, HEAD, ID, RESULT, RequestId, result_message};
use crate::http::body::Body;
use crate::mcp::error::RpcError;
use crate::mcp::version::ProtocolVersion;

/// An error. If no id could be read, the revision decides how it is represented; without a revision it is `null`.
pub fn error_message(id: Option<RequestId<'_>>, version: Option<ProtocolVersion>, error: &RpcError) -> Bytes {
    let omitted = version.is_some_and(ProtocolVersion::omits_unreadable_ids);
    let id = match id {
        Some(id) => format!(r#","id":{}"#, id.as_json()),
        None if omitted => String::new(),
        None => r#","id":null"#.to_owned(),
    };
    let (code, message, data) = (error.code, Value::from(&*error.message), error.data());
    format!(r#"{{"jsonrpc":"2.0"{id},"error":{{"code":{code},"message":{message},"data":{data}}}}}"#).into()
}

/// The answers to the members of a batch, in order.
#[derive(Debug, Default)]
pub struct BatchAnswers {
    /// Long results, and what precedes each.
    pieces: Vec<Bytes>,
    /// What follows the last piece.
    text: Vec<u8>,
    bytes: usize,
}

impl BatchAnswers {
    /// Appends an answer with a result; returns its length.
    pub fn push_result(&mut self, id: RequestId<'_>, result: Bytes) -> usize {
        if result.len() <= COPIED {
            return self.push(&result_message(id, &result));
        }
        let head = [HEAD, ID, id.as_json().as_bytes(), RESULT].concat();
        let length = head.len() + result.len() + 1;
        self.push(&head);
        self.bytes += result.len() + 1;
        self.pieces.extend([std::mem::take(&mut self.text).into(), result]);
        self.text.push(b'}');
        length
    }

    /// Appends an answer; returns its length.
    pub fn push(&mut self, answer: &[u8]) -> usize {
        let separator = if self.bytes == 0 { b'[' } else { b',' };
        self.text.push(separator);
        self.text.extend_from_slice(answer);
        self.bytes += 1 + answer.len();
        answer.len()
    }

    /// The length of all answers so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The body of the answer; `None` if no member has one.
    pub fn into_body(mut self) -> Option<Body> {
        if self.bytes == 0 {
            return None;
        }
        self.text.push(b']');
        if self.pieces.is_empty() {
            return Some(Bytes::from(self.text).into());
        }
        self.pieces.push(self.text.into());
        Some(Body::Pieces(self.pieces.into()))
    }
}
