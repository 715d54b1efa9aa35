//! Bodies of all kinds against the envelope, and answers put together.

use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::envelope::COPIED;
use super::{
    BatchAnswers, MAX_BATCH, Message, MessageBody, Rejected, RequestId, error_message, parse, readable_id,
    result_message,
};
use crate::mcp::error::RpcError;
use crate::mcp::version::ProtocolVersion;
use crate::model::audit::event::Outcome;

/// What a body was read as, in one line.
fn read(body: &str) -> String {
    let id = |id: Option<RequestId<'_>>| id.map_or("-", RequestId::as_json).to_owned();
    match parse(body.as_bytes()) {
        Ok(MessageBody::Message(Message::Request(request))) => {
            format!("request {} {}", request.id.as_json(), request.method.as_str())
        }
        Ok(MessageBody::Message(Message::Notification { method, .. })) => format!("notification {method}"),
        Ok(MessageBody::Message(Message::Response)) => "response".to_owned(),
        Ok(MessageBody::Batch(members)) => format!("batch of {}", members.len()),
        Err(Rejected { fault, id: readable, .. }) => format!("{} {}: {fault}", fault.name(), id(readable)),
    }
}

#[track_caller]
fn all_read(cases: &[(&str, &str)]) {
    for (body, expected) in cases {
        assert_eq!(read(body), *expected, "{body}");
    }
}

#[test]
fn kinds_of_messages_are_distinguished() {
    all_read(&[
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping"),
        (
            " \r\n\t{ \"method\" : \"ping\" , \"id\" : \"a\" , \"jsonrpc\" : \"2.0\" } \n",
            "request \"a\" ping",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[1]},"extra":true}"#, "request 1 ping"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[1,2]}"#, "request 1 x"),
        (r#"{"jsonrpc":"2\u002e0","i\u0064":1,"method":"\u0070ing"}"#, "request 1 ping"),
        (
            r#"{"jsonrpc":"2.0","id":12345678901234567890123,"method":"x"}"#,
            "request 12345678901234567890123 x",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"notifications/cancelled"}"#,
            "request 1 notifications/cancelled",
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "notification notifications/initialized",
        ),
        (r#"{"jsonrpc":"2.0","method":"what/ever","params":{}}"#, "notification what/ever"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "response"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#, "response"),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#, "response"),
        (r#"{"jsonrpc":"2.0","error":{"code":1,"message":""}}"#, "response"),
        ("[1,{}]", "batch of 2"),
        (" [ {\"jsonrpc\":\"2.0\"} ] ", "batch of 1"),
    ]);
}

#[test]
fn invalid_json_is_a_parse_error() {
    all_read(&[
        ("", "parse_error -: the body is not JSON: EOF while parsing a value at line 1 column 0"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping""#,
            "parse_error -: the body is not JSON: EOF while parsing an object at line 1 column 39",
        ),
        (
            r#"{"jsonrpc":"2.0","id":01,"method":"ping"}"#,
            "parse_error -: the body is not JSON: invalid number at line 1 column 24",
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":\"\n\",\"method\":\"ping\"}",
            "parse_error -: the body is not JSON: control character (\\u0000-\\u001F) found while parsing a string at line 1 column 23",
        ),
        ("{} {}", "parse_error -: the body is not JSON: trailing characters at line 1 column 4"),
        ("[1,", "parse_error -: the body is not JSON: EOF while parsing a value at line 1 column 3"),
        ("[1] 2", "parse_error -: the body is not JSON: trailing characters at line 1 column 5"),
        // What is wrong with the envelope stands further ahead here.
        (
            r#"{"id":1,"id":2,"params":3,}"#,
            "parse_error -: the body is not JSON: key must be a string at line 1 column 27",
        ),
    ]);
    let rejected = parse(b"{\"id\":1,\"a\":\"\xff\"}").unwrap_err();
    assert_eq!((rejected.fault.to_string(), rejected.id), ("the body is not UTF-8".to_owned(), None));
}

#[test]
fn json_that_is_not_a_message_is_an_invalid_request() {
    all_read(&[
        ("1", "invalid_request -: a message must be an object"),
        ("null", "invalid_request -: a message must be an object"),
        ("\"\\ud800\"", "invalid_request -: a message and its params must be objects"),
        ("{}", "invalid_request -: jsonrpc must be \"2.0\""),
        (r#"{"id":1,"method":"ping"}"#, "invalid_request 1: jsonrpc must be \"2.0\""),
        (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, "invalid_request 1: jsonrpc must be \"2.0\""),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "invalid_request 1: jsonrpc must be \"2.0\""),
        (r#"{"jsonrpc":"2.0","id":1}"#, "invalid_request 1: method is required"),
        (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, "invalid_request 1: method must be a string"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#, "invalid_request 1: method must be a string"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":1}"#,
            "invalid_request 1: params must be an object",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#,
            "invalid_request 1: params must be an object",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"\udc00"}"#,
            "invalid_request 1: a message and its params must be objects",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
            "invalid_request 1: a message has either a method or a result or an error",
        ),
        (r#"{"jsonrpc":"2.0","method":"ping"}"#, "invalid_request -: a request needs an id"),
        (r#"{"jsonrpc":"2.0","method":"resources/read"}"#, "invalid_request -: a request needs an id"),
    ]);
}

#[test]
fn an_id_is_an_integer_or_a_string() {
    let bad = "id must be an integer or a string of at most 1024 bytes";
    let long = format!("\"{}\"", "a".repeat(1_025));
    for id in ["null", "1.5", "1.0", "1e3", "true", "[]", "{}", &long] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert_eq!(read(&body), format!("invalid_request -: {bad}"));
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        assert_eq!(read(&body), format!("invalid_request -: {bad}"));
    }
}

#[test]
fn a_response_names_an_id_of_the_servers_which_no_error_answers() {
    all_read(&[
        (r#"{"jsonrpc":"2.0","result":{}}"#, "invalid_request -: a response needs an id"),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            "invalid_request -: a response has either a result or an error",
        ),
        (r#"{"jsonrpc":"1.0","id":1,"result":{}}"#, "invalid_request -: jsonrpc must be \"2.0\""),
    ]);
}

#[test]
fn a_duplicate_member_is_refused_on_every_level() {
    let meta = "params._meta";
    for (body, id, level) in [
        (r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}"#, "-", "the message"),
        (r#"{"jsonrpc":"2.0","id":1,"i\u0064":1,"method":"ping"}"#, "-", "the message"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"}"#, "1", "the message"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","x":1,"x":2}"#, "1", "the message"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}"#, "1", "the message"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"a":1}}"#, "1", "params"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{},"_meta":{}}}"#, "1", "params"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"a":1,"\u0061":1}}}"#, "1", meta),
    ] {
        assert_eq!(read(body), format!("invalid_request {id}: {level} has a member twice"), "{body}");
    }
    // Deeper down it is not the envelope's business.
    assert_eq!(
        read(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":{"b":1,"b":1}}}"#),
        "request 1 ping"
    );
}

#[test]
fn a_body_that_nests_too_deeply_is_refused_with_its_id() {
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{"a":{open}{close}}}}}"#)
    };
    assert_eq!(read(&nested(62)), "request 7 ping");
    assert_eq!(read(&nested(63)), "invalid_request 7: the body nests deeper than 64 levels");
    assert_eq!(read(&nested(1_000_000)), "invalid_request 7: the body nests deeper than 64 levels");
    assert_eq!(read(&"[".repeat(65)), "invalid_request -: the body nests deeper than 64 levels");
}

#[test]
fn a_batch_has_from_1_to_50_messages() {
    let of = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
    assert_eq!(read(&of(MAX_BATCH)), "batch of 50");
    for count in [0, MAX_BATCH + 1, 10_000] {
        assert_eq!(read(&of(count)), "invalid_request -: a batch has from 1 to 50 messages");
    }
}

#[test]
fn the_version_in_meta_is_noticed_in_good_and_in_bad_messages() {
    let declares = |body: &str| match parse(body.as_bytes()) {
        Ok(incoming) => incoming.declares_version(),
        Err(rejected) => rejected.declares_version,
    };
    let params = r#""params":{"_meta":{"io.modelcontextprotocol/protocolVersion":null}}"#;
    assert!(declares(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x",{params}}}"#)));
    assert!(declares(&format!(r#"{{"jsonrpc":"2.0","method":"x",{params}}}"#)));
    assert!(declares(&format!(r#"{{"id":null,{params}}}"#)));
    assert!(!declares(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{}}}"#));
    assert!(!declares(&format!(r#"[{{"jsonrpc":"2.0","id":1,"method":"x",{params}}}]"#)));
}

fn error(detail_free_message: &'static str) -> RpcError {
    RpcError {
        status: StatusCode::BAD_REQUEST,
        code: -32600,
        outcome: Outcome::InvalidRequest,
        message: detail_free_message.into(),
        detail: None,
        retry_after: None,
    }
}

fn id_of(body: &'static [u8]) -> RequestId<'static> {
    readable_id(body).unwrap()
}

#[test]
fn a_result_follows_its_id() {
    let answer = result_message(id_of(br#"{"id":"\u00e4"}"#), br#"{"a":1}"#);
    assert_eq!(answer, r#"{"jsonrpc":"2.0","id":"\u00e4","result":{"a":1}}"#);
}

#[test]
fn an_unknown_id_is_null_or_omitted_by_revision() {
    let error = error("say \"why\"");
    let rest = r#""error":{"code":-32600,"message":"say \"why\"","data":{"code":"invalid_request"}}}"#;
    let newest = Some(ProtocolVersion::V2026_07_28);
    assert_eq!(
        error_message(Some(id_of(br#"{"id":1}"#)), newest, &error),
        format!(r#"{{"jsonrpc":"2.0","id":1,{rest}"#)
    );
    let without = format!(r#"{{"jsonrpc":"2.0",{rest}"#);
    let null = format!(r#"{{"jsonrpc":"2.0","id":null,{rest}"#);
    for (version, expected) in [
        (newest, &without),
        (Some(ProtocolVersion::V2025_11_25), &without),
        (Some(ProtocolVersion::V2025_06_18), &null),
        (Some(ProtocolVersion::V2025_03_26), &null),
        (Some(ProtocolVersion::V2024_11_05), &null),
        (None, &null),
    ] {
        assert_eq!(error_message(None, version, &error), *expected, "{version:?}");
    }
}

#[tokio::test]
async fn a_batch_is_answered_as_an_array_without_copies_of_long_results_or_not_at_all() {
    let (short, long) = (Bytes::from_static(b"{}"), Bytes::from(Value::from("x".repeat(COPIED)).to_string()));
    let id = id_of(br#"{"id":7}"#);
    for results in [vec![&short], vec![&long], vec![&short, &long, &long, &short], vec![&long, &short, &long]]
    {
        let (mut answers, mut expected) = (BatchAnswers::default(), Vec::new());
        for &result in &results {
            let alone = result_message(id, result);
            assert_eq!(answers.push_result(id, result.clone()), alone.len());
            expected.push(alone);
        }
        assert_eq!(answers.bytes(), expected.iter().map(|answer| answer.len() + 1).sum::<usize>());
        let (mut body, mut whole, mut shared) = (answers.into_body().unwrap(), Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            shared += usize::from(piece.as_ptr() == long.as_ptr());
            whole.extend_from_slice(&piece);
        }
        assert_eq!(whole, [b"[", &*expected.join(&b','), b"]"].concat());
        assert_eq!(shared, results.iter().filter(|&&result| *result == long).count());
    }
    assert!(BatchAnswers::default().into_body().is_none());
}

/// Pieces of which bodies are made that are nearly messages.
fn nearly_json() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "null",
        "1",
        "1.5",
        "-",
        "e9",
        " ",
        "\"id\"",
        "\"jsonrpc\"",
        "\"2.0\"",
        "\"method\"",
        "\"params\"",
        "\"_meta\"",
        "\"result\"",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "\\u",
        "ä",
        "\u{0}",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,5}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,3}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn id_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i128>().prop_map(|number| number.to_string()),
        ".{0,20}".prop_map(|text| Value::from(text).to_string()),
    ]
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
        _ = (parse(&bytes).is_ok(), readable_id(&bytes));
    }

    #[test]
    fn nothing_that_is_nearly_a_message_is_misjudged(text in nearly_json()) {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        let is_parse_error = matches!(parse(text.as_bytes()), Err(rejected) if rejected.fault.name() == "parse_error");
        prop_assert_eq!(is_parse_error, !is_json);
    }

    #[test]
    fn the_id_is_answered_whatever_else_is_wrong(
        id in id_text(),
        place in 0..4_usize,
        broken in 0..4_usize,
        value in json_value(),
        repeats: bool,
    ) {
        let mut members = [
            ("jsonrpc", "\"2.0\"".to_owned()),
            ("method", "\"resources/read\"".to_owned()),
            ("params", r#"{"uri":"a:b","_meta":{"a":1}}"#.to_owned()),
            ("extra", "1".to_owned()),
        ];
        members[broken].1 = value.to_string();
        let mut members: Vec<_> = members.iter().map(|(name, text)| format!("\"{name}\":{text}")).collect();
        if repeats {
            members.push(members[broken].clone());
        }
        members.insert(place, format!("\"id\":{id}"));
        let body = format!("{{{}}}", members.join(","));
        let answered = match parse(body.as_bytes()) {
            Ok(incoming) => incoming.id(),
            Err(rejected) => rejected.id,
        };
        prop_assert_eq!(answered.map(RequestId::as_json), Some(id.as_str()));
        prop_assert_eq!(readable_id(body.as_bytes()).map(RequestId::as_json), Some(id.as_str()));
    }

    #[test]
    fn an_answer_is_json_with_the_id_and_the_result(id in id_text(), result in json_value(), message in ".{0,30}") {
        let body = format!(r#"{{"id":{id}}}"#);
        let id = readable_id(body.as_bytes()).unwrap();
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.as_json());
        let answer = result_message(id, result.to_string().as_bytes());
        prop_assert_eq!(&answer, &expected);
        prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&answer).is_ok());

        let error = RpcError { message: message.clone().into(), ..error("") };
        let answer: Value = serde_json::from_slice(&error_message(Some(id), None, &error)).unwrap();
        prop_assert_eq!(&answer["error"]["message"], &Value::from(message));
    }
}
