//! Bodies that are not well-formed messages.

use super::{MODERN, post};
use crate::case::Case;
use serde_json::Value;

const BODIES: [(&str, &str); 62] = [
    ("nothing", ""),
    ("white space", "  \n "),
    ("no JSON", "hello"),
    ("an open object", r#"{"jsonrpc":"2.0","#),
    ("an open text", r#"{"jsonrpc":"2.0"#),
    ("two values", r#"{"jsonrpc":"2.0","id":1,"method":"ping"} {}"#),
    ("a comma too many", r#"{"jsonrpc":"2.0","id":1,"method":"ping",}"#),
    ("single quotes", "{'jsonrpc':'2.0'}"),
    ("a comment", r#"{"jsonrpc":"2.0",/* */"id":1,"method":"ping"}"#),
    ("NaN", r#"{"jsonrpc":"2.0","id":NaN,"method":"ping"}"#),
    ("a byte order mark", "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"),
    ("null", "null"),
    ("true", "true"),
    ("a number", "7"),
    ("a text", "\"ping\""),
    ("an empty object", "{}"),
    ("an empty list", "[]"),
    ("a list of a number", "[1]"),
    ("a list in a list", "[[]]"),
    ("no jsonrpc", r#"{"id":1,"method":"ping"}"#),
    ("jsonrpc 1.0", r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#),
    ("jsonrpc as a number", r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#),
    ("jsonrpc null", r#"{"jsonrpc":null,"id":1,"method":"ping"}"#),
    ("jsonrpc twice", r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}"#),
    ("id twice", r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#),
    ("method twice", r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"resources/list"}"#),
    ("params twice", r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}"#),
    (
        "a param twice",
        r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"test://plain","uri":"test://json"}}"#,
    ),
    (
        "a member of _meta twice",
        r#"{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"_meta":{"a":1,"a":2}}}"#,
    ),
    ("_meta twice", r#"{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"_meta":{},"_meta":{}}}"#),
    ("id null", r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#),
    ("id fractional", r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#),
    ("id with an exponent", r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#),
    ("id negative", r#"{"jsonrpc":"2.0","id":-1,"method":"ping"}"#),
    ("id minus zero", r#"{"jsonrpc":"2.0","id":-0,"method":"ping"}"#),
    ("id of many digits", r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"ping"}"#),
    ("id of 64 bits", r#"{"jsonrpc":"2.0","id":9223372036854775807,"method":"ping"}"#),
    ("id a text", r#"{"jsonrpc":"2.0","id":"a-1","method":"ping"}"#),
    ("id an empty text", r#"{"jsonrpc":"2.0","id":"","method":"ping"}"#),
    ("id a text with escapes", r#"{"jsonrpc":"2.0","id":"\u00e4\n\"🐝","method":"ping"}"#),
    ("id a lone surrogate", r#"{"jsonrpc":"2.0","id":"\ud800","method":"ping"}"#),
    ("id true", r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#),
    ("id a list", r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#),
    ("id an object", r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#),
    ("no method", r#"{"jsonrpc":"2.0","id":1}"#),
    ("method null", r#"{"jsonrpc":"2.0","id":1,"method":null}"#),
    ("method a number", r#"{"jsonrpc":"2.0","id":1,"method":7}"#),
    ("method escaped", r#"{"jsonrpc":"2.0","id":1,"method":"\u0070ing"}"#),
    ("params a list", r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#),
    ("params null", r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#),
    ("params a text", r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}"#),
    (
        "params of a notification a list",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":[1]}"#,
    ),
    ("unknown members", r#"{"jsonrpc":"2.0","id":1,"method":"ping","extra":{"a":[1,2,3]},"x":null}"#),
    ("members in another order", r#"{"params":{},"method":"ping","id":1,"jsonrpc":"2.0"}"#),
    ("white space between all", "{ \"jsonrpc\" : \"2.0\" ,\r\n\t\"id\" : 1 , \"method\" : \"ping\" }\n"),
    ("a result", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
    ("an error", r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#),
    ("a result and an error", r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":-1,"message":"no"}}"#),
    ("a result and a method", r#"{"jsonrpc":"2.0","id":1,"result":{},"method":"ping"}"#),
    ("a result without an id", r#"{"jsonrpc":"2.0","result":{}}"#),
    (
        "a lone surrogate in params",
        r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"\ud800"}}"#,
    ),
    ("a control character", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\u{1}ng\"}"),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut bodies: Vec<(String, Vec<u8>)> =
        BODIES.iter().map(|(name, body)| ((*name).to_owned(), (*body).into())).collect();
    bodies.push((
        "bytes that are no UTF-8".to_owned(),
        b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}".to_vec(),
    ));
    for depth in [62, 63, 64, 65, 300] {
        let nested = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{}{}}}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        );
        bodies.push((format!("{depth} lists within params"), nested.into_bytes()));
    }
    for length in [65_536, 65_537] {
        let frame = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":""}}"#;
        let filled = frame.replace(r#""a":"""#, &format!(r#""a":"{}""#, "x".repeat(length - frame.len())));
        bodies.push((format!("{length} bytes"), filled.into_bytes()));
    }
    let versions = [Some(MODERN), Some("2025-11-25"), Some("2025-06-18"), Some("2025-03-26"), None];
    let mut cases = Vec::new();
    for (name, body) in bodies {
        for version in versions {
            // Large bodies are recorded once.
            if body.len() > 60_000 && version.is_some() {
                continue;
            }
            let case = post(format!("{name}, {}", version.unwrap_or("no version")), "alpha", &Value::Null);
            let case = case.key("mcp").raw(body.clone());
            cases.push(match version {
                Some(version) => case.header("mcp-protocol-version", version),
                None => case,
            });
        }
    }
    cases
}
