//! Legacy messages of all kinds against what they are read as.

use serde_json::Value;

use super::dispatch::{LegacyMessage, LegacyMethod, decode, decode_batch};
use crate::mcp::version::ProtocolVersion;
use crate::mcp::wire::{Message, MessageBody, Rejected, parse};
use crate::model::fault::Fault;

fn message(body: &str) -> Message<'_> {
    match parse(body.as_bytes()) {
        Ok(MessageBody::Message(message)) => message,
        other => panic!("{other:?}"),
    }
}

/// What a request with this method and these parameters is read as, in one line.
fn read(method: &str, params: &str) -> String {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":{},"params":{params}}}"#, Value::from(method));
    match decode(&message(&body)) {
        Ok(LegacyMessage::Unanswered) => "unanswered".to_owned(),
        Ok(LegacyMessage::Call(call)) => match call.method {
            LegacyMethod::Initialize(asked) => format!(
                "initialize {} for {} {} capable of {}",
                asked.version.as_str(),
                asked.client.name,
                asked.client.version,
                asked.capabilities
            ),
            method => format!("{method:?}"),
        },
        Err(fault) => format!("{}: {fault}", fault.name()),
    }
}

#[test]
fn every_method_of_the_era_is_read() {
    for (method, params, expected) in [
        ("ping", "{}", "Ping"),
        ("resources/list", "{}", "Call(List { list: Resources, cursor: None })"),
        (
            "resources/list",
            r#"{"cursor":"c\u0031","x":1}"#,
            "Call(List { list: Resources, cursor: Some(\"c1\") })",
        ),
        (
            "resources/read",
            r#"{"uri":"a:b","_meta":{"progressToken":1}}"#,
            "Call(ReadResource { uri: \"a:b\" })",
        ),
        ("resources/templates/list", "{}", "Call(List { list: Templates, cursor: None })"),
        ("prompts/list", "{}", "Call(List { list: Prompts, cursor: None })"),
        ("prompts/get", r#"{"name":"p"}"#, "Call(GetPrompt { name: \"p\", arguments: {} })"),
        (
            "prompts/get",
            r#"{"name":"p","arguments":{"b":"\u00e4","a":""}}"#,
            r#"Call(GetPrompt { name: "p", arguments: {"a": "", "b": "ä"} })"#,
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"x"}}"#,
            r#"Call(Complete(CompletionRequest { reference: Prompt("p"), argument: "a", value: "x", context: {} }))"#,
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/resource","uri":"a:{b}"},"argument":{"name":"b","value":""},"context":{"arguments":{"c":"d"}}}"#,
            r#"Call(Complete(CompletionRequest { reference: Template("a:{b}"), argument: "b", value: "", context: {"c": "d"} }))"#,
        ),
        ("tools/list", "{}", "Call(ListTools { cursor: None })"),
        ("resources/subscribe", r#"{"uri":"a:b"}"#, r#"InSession(Subscribe, Ok(Subscribe("a:b")))"#),
        (
            "resources/unsubscribe",
            "{}",
            r#"InSession(Unsubscribe, Err(InvalidParams("params.uri is required")))"#,
        ),
        ("logging/setLevel", r#"{"level":"error"}"#, "InSession(SetLevel, Ok(SetLevel(Error)))"),
        ("tools/call", r#"{"name":"t"}"#, r#"Call(CallTool { name: "t", arguments: "{}" })"#),
        ("tools/call", r#"{"name":"t","arguments":[]}"#, r#"Call(CallTool { name: "t", arguments: "[]" })"#),
        ("server/discover", "{}", "method_not_found: unknown method: server/discover"),
        ("subscriptions/listen", "{}", "method_not_found: unknown method: subscriptions/listen"),
        ("Resources/List", "[]", "method_not_found: unknown method: Resources/List"),
    ] {
        assert_eq!(read(method, params), expected, "{method} {params}");
    }
}

#[test]
fn refused_parameters_are_named() {
    let uri = "resources/read";
    for (method, params, expected) in [
        ("resources/list", r#"{"cursor":1}"#, "params.cursor must be a string"),
        ("resources/list", r#"{"cursor":null}"#, "params.cursor must be a string"),
        ("resources/list", r#"{"cursor":"\ud800"}"#, "params.cursor must be a string"),
        ("resources/list", "[]", "params must be an object"),
        ("resources/list", r#"{"_meta":1}"#, "params._meta must be an object"),
        ("resources/list", r#"{"_meta":[]}"#, "params._meta must be an object"),
        ("tools/list", r#"{"cursor":1}"#, "params.cursor must be a string"),
        ("tools/call", "{}", "params.name is required"),
        ("prompts/get", "{}", "params.name is required"),
        ("prompts/get", r#"{"name":""}"#, "unknown prompt: "),
        ("prompts/get", r#"{"name":"p","arguments":[]}"#, "params.arguments must be an object"),
        (
            "prompts/get",
            r#"{"name":"p","arguments":{"a":1}}"#,
            "params.arguments must be an object whose members are strings",
        ),
        ("prompts/get", r#"{"name":"p","arguments":{"a":"","a":""}}"#, "params.arguments has a member twice"),
        ("completion/complete", "{}", "params.ref is required"),
        ("completion/complete", r#"{"ref":{}}"#, "params.argument is required"),
        ("completion/complete", r#"{"ref":{},"argument":{}}"#, "params.ref.type must be a string"),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/tool"},"argument":{}}"#,
            "params.ref.type must be ref/prompt or ref/resource",
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a"}}"#,
            "params.argument.value must be a string",
        ),
        (
            "completion/complete",
            r#"{"ref":{},"argument":{},"context":{"arguments":{"a":null}}}"#,
            "params.context.arguments must be an object whose members are strings",
        ),
        (
            "completion/complete",
            r#"{"ref":{},"argument":{},"context":{"arguments":{"\ud800":"no text"}}}"#,
            "params.context.arguments must be an object whose members are strings",
        ),
        (uri, "{}", "params.uri is required"),
        (uri, r#"{"uri":["a:b"]}"#, "params.uri must be a string"),
        (uri, r#"{"uri":"\udfff"}"#, "params.uri must be a string"),
        (uri, r#"{"uri":"nothing"}"#, "params.uri is not an absolute URI of RFC 3986"),
        (uri, r#"{"uri":"a:\u0000"}"#, "params.uri is not an absolute URI of RFC 3986"),
    ] {
        assert_eq!(read(method, params), format!("invalid_params: {expected}"), "{method} {params}");
    }
    let long = format!(r#"{{"uri":"a:{}"}}"#, "b".repeat(2_048));
    assert_eq!(read(uri, &long), "invalid_params: params.uri is longer than 2048 bytes");
}

#[test]
fn echoed_client_input_is_truncated() {
    let name = format!("{}{}", "x".repeat(255), "ä".repeat(1_000));
    let short = format!("{}…", "x".repeat(255));
    assert_eq!(read(&name, "{}"), format!("method_not_found: unknown method: {short}"));
    let params = format!(r#"{{"name":{}}}"#, Value::from(format!("{name}{}", "x".repeat(512))));
    assert_eq!(read("prompts/get", &params), format!("invalid_params: unknown prompt: {short}"));
}

#[test]
fn initialize_negotiates_the_revision() {
    for (asked, agreed) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ] {
        let params = format!(
            r#"{{"protocolVersion":"{asked}","capabilities":{{"roots":{{}}}},"clientInfo":{{"name":"c","version":"1"}}}}"#
        );
        let expected = format!(r#"initialize {agreed} for c 1 capable of {{"roots":{{}}}}"#);
        assert_eq!(read("initialize", &params), expected);
    }
}

#[test]
fn initialize_needs_its_parameters() {
    let client = r#""clientInfo":{"name":"c","version":"1"}"#;
    let form = "params.clientInfo must have a name and a version, both strings";
    for (params, expected) in [
        ("[]".to_owned(), "params must be an object"),
        (format!(r#"{{"capabilities":{{}},{client}}}"#), "params.protocolVersion is required"),
        (
            format!(r#"{{"protocolVersion":1,"capabilities":{{}},{client}}}"#),
            "params.protocolVersion must be a string",
        ),
        (format!(r#"{{"protocolVersion":"x",{client}}}"#), "params.capabilities is required"),
        (
            format!(r#"{{"protocolVersion":"x","capabilities":[],{client}}}"#),
            "params.capabilities must be an object",
        ),
        (r#"{"protocolVersion":"x","capabilities":{}}"#.to_owned(), "params.clientInfo is required"),
        (r#"{"protocolVersion":"x","capabilities":{},"clientInfo":{"name":"c"}}"#.to_owned(), form),
        (
            r#"{"protocolVersion":"x","capabilities":{},"clientInfo":{"name":1,"version":"1"}}"#.to_owned(),
            form,
        ),
    ] {
        assert_eq!(read("initialize", &params), format!("invalid_params: {expected}"), "{params}");
    }
}

#[test]
fn notifications_and_responses_are_taken_without_an_answer() {
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/of/the/future","params":[]}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":""}}"#,
    ] {
        assert!(matches!(decode(&message(body)), Ok(LegacyMessage::Unanswered)), "{body}");
    }
}

/// What a batch is read as: each message's id or fault, or the fault of all of it.
fn read_batch(body: &str, version: ProtocolVersion) -> Result<Vec<String>, Fault> {
    let Ok(MessageBody::Batch(members)) = parse(body.as_bytes()) else { panic!("{body}") };
    let one = |message: &Result<Message<'_>, Rejected<'_>>| match message {
        Ok(Message::Request(request)) => request.id.as_json().to_owned(),
        Ok(_) => "unanswered".to_owned(),
        Err(rejected) => format!("{:?} {:?}", rejected.id, rejected.fault.to_string()),
    };
    Ok(decode_batch(&members, version)?.iter().map(one).collect())
}

const BATCH: &str =
    r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"n"},{"id":"x"},[]]"#;

#[test]
fn the_messages_of_a_batch_are_refused_one_by_one() {
    let expected = [
        "1",
        "unanswered",
        r#"Some(RequestId("\"x\"")) "jsonrpc must be \"2.0\"""#,
        r#"None "a message must be an object""#,
    ];
    assert_eq!(read_batch(BATCH, ProtocolVersion::V2025_03_26), Ok(expected.map(str::to_owned).to_vec()));
}

#[test]
fn only_the_revision_with_batches_accepts_them() {
    let refused = Err(Fault::InvalidRequest("this revision has no batches".into()));
    for version in ProtocolVersion::SUPPORTED.into_iter().filter(|v| *v != ProtocolVersion::V2025_03_26) {
        assert_eq!(read_batch(BATCH, version), refused, "{version:?}");
    }
}

#[test]
fn a_batch_does_not_initialize() {
    let body = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"initialize"}]"#;
    let refused = Err(Fault::InvalidRequest("initialize must not be part of a batch".into()));
    assert_eq!(read_batch(body, ProtocolVersion::V2025_03_26), refused);
}
