//! Answers as JSON-RPC messages: an encoded result spliced behind the request id, an error, a batch.

use bytes::Bytes;
use serde_json::Value;

use super::request_id::RequestId;
use crate::http::body::Body;
use crate::mcp::error::RpcError;
use crate::mcp::version::ProtocolVersion;

const HEAD: &[u8] = br#"{"jsonrpc":"2.0""#;
const ID: &[u8] = br#","id":"#;
const RESULT: &[u8] = br#","result":"#;

/// Results up to this size are copied behind the id; longer ones are sent from the cache without a copy.
const COPIED: usize = 64 * 1024;

/// The answer to a request, from an encoded result.
pub fn result_message(id: RequestId<'_>, result: &[u8]) -> Bytes {
    let parts = [HEAD, ID, id.as_json().as_bytes(), RESULT, result, b"}"];
    parts.concat().into()
}

/// The answer to a request, as a body.
pub fn result_pieces(id: RequestId<'_>, result: Bytes) -> Body {
    if result.len() <= COPIED {
        return result_message(id, &result).into();
    }
    let head = [HEAD, ID, id.as_json().as_bytes(), RESULT].concat();
    Body::Pieces([head.into(), result, Bytes::from_static(b"}")])
}

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

/// The answers to a batch; `None` if no member has one.
pub fn batch_message(answers: &[Bytes]) -> Option<Bytes> {
    (!answers.is_empty()).then(|| [b"[", &*answers.join(&b','), b"]"].concat().into())
}
