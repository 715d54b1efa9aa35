//! The method table against both dialects: which methods each era serves.

use http::HeaderMap;

use super::version::McpHeaders;
use super::wire::{Message, MessageBody, Request, parse};
use super::{legacy, modern};
use crate::model::fault::Fault;
use crate::model::method::{Era, Method};

/// Every method with the eras of the contract: modern, legacy.
const CONTRACT: [(&str, [bool; 2]); 18] = [
    ("initialize", [false, true]),
    ("ping", [false, true]),
    ("server/discover", [true, false]),
    ("resources/list", [true, true]),
    ("resources/templates/list", [true, true]),
    ("resources/read", [true, true]),
    ("prompts/list", [true, true]),
    ("prompts/get", [true, true]),
    ("completion/complete", [true, true]),
    ("tools/list", [true, true]),
    ("tools/call", [true, true]),
    ("skills/list", [true, true]),
    ("skills/get", [true, true]),
    ("resources/directory/read", [true, true]),
    ("subscriptions/listen", [true, false]),
    ("resources/subscribe", [false, true]),
    ("resources/unsubscribe", [false, true]),
    ("logging/setLevel", [false, true]),
];

/// The fault of a request with this method, as an era decodes it.
fn fault(method: &str, era: Era) -> Option<Fault> {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let params = format!(r#"{{"_meta":{meta},"uri":"a:b","name":"a:b"}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let incoming = parse(body.as_bytes()).unwrap();
    match era {
        Era::Modern => {
            let sent = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", "a:b")];
            let headers: HeaderMap = sent
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .into_iter()
                .collect();
            match modern::dispatch::decode(&McpHeaders::read(&headers), &incoming, 1) {
                Err(modern::ModernError::Fault(fault)) => Some(fault),
                decoded => decoded.map(|_| None).unwrap(),
            }
        }
        Era::Legacy => {
            let MessageBody::Message(message) = &incoming else { panic!("{body}") };
            match legacy::dispatch::decode(message) {
                Ok(legacy::dispatch::LegacyMessage::Unanswered) => panic!("{body}"),
                Ok(legacy::dispatch::LegacyMessage::Call(_)) => None,
                Err(fault) => Some(fault),
            }
        }
    }
}

#[test]
fn each_method_is_served_in_its_eras_and_unknown_in_the_others() {
    for (name, eras) in CONTRACT {
        for (era, served) in [Era::Modern, Era::Legacy].into_iter().zip(eras) {
            let unknown = Some(Fault::MethodNotFound(name.to_owned()));
            assert_eq!(fault(name, era) != unknown, served, "{name} {era:?}");
        }
    }
    let names: Vec<_> = Method::ALL.map(Method::name).into_iter().collect();
    assert_eq!(names, CONTRACT.map(|(name, _)| name), "the contract lists every row");
}

#[test]
fn a_name_outside_the_table_is_unknown_in_both_eras() {
    for era in Era::ALL {
        assert_eq!(fault("x/unknown", era), Some(Fault::MethodNotFound("x/unknown".to_owned())));
    }
}

#[test]
fn the_method_is_looked_up_when_the_message_is_read() {
    let read = |method: &str| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        match parse(body.as_bytes()) {
            Ok(MessageBody::Message(Message::Request(Request { method, .. }))) => method.known(),
            _ => None,
        }
    };
    assert_eq!(read("resources/read"), Some(Method::ReadResource));
    assert_eq!(read("resources\\/read"), Some(Method::ReadResource));
    assert_eq!(read("x/unknown"), None);
}
