//! Administration bodies that are not JSON objects or not declared as such; unknown paths and queries.

use serde_json::Value;

use super::{Fixture, invalid};
use crate::support::answers::problem;
use crate::support::app::encode;

const TENANTS: (&str, &str) = ("POST", "/tenants");

fn no_json(why: &str) -> Value {
    problem(400, "parse_error", &format!("the body is not JSON: {why}"))
}

#[tokio::test]
async fn body_that_is_not_a_json_object_is_refused() {
    let mut fixture = Fixture::new().await;
    let deep = |levels: usize| format!("{{\"id\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    let too_deep = problem(400, "invalid_request", "the body nests deeper than 64 levels");
    let no_object =
        |what: &str| invalid(&format!("invalid type: {what}, expected an object at line 1 column 0"));
    let utf16: Vec<u8> = r#"{"id":"x"}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let cases: Vec<(Vec<u8>, Value)> = vec![
        (b"".into(), no_json("EOF while parsing a value at line 1 column 0")),
        (b" \n".into(), no_json("EOF while parsing a value at line 2 column 0")),
        (b"{".into(), no_json("EOF while parsing an object at line 1 column 1")),
        (br#"{"id":"x""#.into(), no_json("EOF while parsing an object at line 1 column 9")),
        (br#"{"id":"x"} x"#.into(), no_json("trailing characters at line 1 column 12")),
        (br#"{"id":"x"}{}"#.into(), no_json("trailing characters at line 1 column 11")),
        (br#"{"id":"x",}"#.into(), no_json("trailing comma at line 1 column 11")),
        (b"{'id':'x'}".into(), no_json("key must be a string at line 1 column 2")),
        (b"{id:1}".into(), no_json("key must be a string at line 1 column 2")),
        (b"{\"id\":NaN}".into(), no_json("expected value at line 1 column 7")),
        (
            b"{\"id\":\"\x00\"}".into(),
            no_json("control character (\\u0000-\\u001F) found while parsing a string at line 1 column 8"),
        ),
        (b"\xef\xbb\xbf{}".into(), no_json("expected value at line 1 column 1")),
        (b"{\"id\":\"\xff\"}".into(), no_json("invalid unicode code point at line 1 column 8")),
        (utf16, no_json("key must be a string at line 1 column 2")),
        (b"null".into(), invalid("invalid type: null, expected an object at line 1 column 4")),
        (b"5".into(), invalid("invalid type: integer `5`, expected an object at line 1 column 1")),
        (b"\"x\"".into(), invalid("invalid type: string \"x\", expected an object at line 1 column 3")),
        (br#"["x","name"]"#.into(), no_object("sequence")),
        (br#"[{"id":"x"}]"#.into(), no_object("sequence")),
        (deep(64).into(), too_deep.clone()),
        (deep(100_000).into(), too_deep.clone()),
        ("[".repeat(200_000).into(), too_deep),
        (br#"{"id":"x","id":"y"}"#.into(), invalid("duplicate field `id` at line 1 column 14")),
        (br#"{"id":"x","i\u0064":"y"}"#.into(), invalid("duplicate field `id` at line 1 column 19")),
        (b"{}".into(), invalid("missing field `id` at line 1 column 2")),
        (br#"{"id":null}"#.into(), invalid("id: invalid type: null, expected a string at line 1 column 10")),
    ];
    for (body, expected) in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        assert_eq!(fixture.admin(TENANTS, body).await, expected, "{shown}");
    }
    let form = "id must match ^[a-z0-9][a-z0-9_-]{0,62}$";
    for id in ["", "A", "a b", "a.b", "-a", "ä", "a\\u0000", "../a", "a/b", &"a".repeat(3_000)] {
        assert_eq!(fixture.admin(TENANTS, format!(r#"{{"id":"{id}"}}"#)).await, invalid(form), "{id}");
    }
    assert!(fixture.check_unaffected().await > 30);
}

#[tokio::test]
async fn body_must_be_declared_json_and_within_its_limit() {
    let mut fixture = Fixture::new().await;
    let operator = format!("Bearer {}", fixture.replica.operator);
    let operator = ("authorization", operator.as_str());
    let undeclared = problem(415, "unsupported_media_type", "Content-Type must be application/json");
    let types = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json-patch+json",
        "json",
        "",
        "\u{e4}",
    ];
    for essence in types {
        for path in ["/admin/v1/tenants", "/admin/v1/agents/a/keys"] {
            let headers = [operator, ("content-type", essence)];
            assert_eq!(fixture.send("POST", path, &headers, r#"{"id":"x"}"#).await, undeclared, "{essence}");
        }
    }
    assert_eq!(fixture.send("POST", "/admin/v1/tenants", &[operator], "{}").await, undeclared);
    let large = problem(413, "payload_too_large", "the body is longer than 262144 bytes");
    for length in [262_145, 1 << 20, 20 << 20] {
        assert_eq!(fixture.admin(TENANTS, " ".repeat(length)).await, large, "{length}");
        // The body is not read before the credential is verified; the answer arrives nevertheless.
        let refused = problem(401, "unauthenticated", "a valid credential is required");
        assert_eq!(
            fixture.send("POST", "/admin/v1/tenants", &[], " ".repeat(length)).await,
            refused,
            "{length}"
        );
    }
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn unknown_paths_and_queries_are_refused() {
    let mut fixture = Fixture::new().await;
    let gone = |what: &str| problem(404, "not_found", &format!("no such {what}"));
    let long = format!("/agents/{}", "a".repeat(60_000));
    for (path, expected) in [
        ("/agents/%00", gone("agent")),
        ("/agents/%00/keys", gone("agent")),
        ("/agents/a%00/resources", gone("agent")),
        ("/agents/%ff", gone("path")),
        ("/agents/%C3%A4", gone("agent")),
        ("/agents/A", gone("agent")),
        ("/agents/..%2f..", gone("agent")),
        ("/agents/a%2fkeys", gone("agent")),
        ("/agents/%zz", gone("agent")),
        (&long, gone("agent")),
        ("/tenants/%00", gone("tenant")),
        ("/tenants/%ff/keys", gone("path")),
        ("/agents?tenant=%00", gone("tenant")),
        ("/agents?tenant=%ff", gone("tenant")),
        ("/agents?tenant=", gone("tenant")),
        ("/agents/", gone("path")),
        ("//agents", gone("path")),
        ("", gone("path")),
        ("/agents/a/resources/", gone("path")),
    ] {
        assert_eq!(fixture.admin(("GET", path), "").await, expected, "{}", &path[..path.len().min(60)]);
    }
    for id in ["%00", "%ff", "1", "00000000-0000-0000-0000-000000000000", "x", "{}"] {
        let what = if id == "%ff" { "path" } else { "key" };
        assert_eq!(fixture.admin(("DELETE", &format!("/keys/{id}")), "").await, gone(what), "{id}");
        assert_eq!(fixture.admin(("POST", &format!("/keys/{id}/rotate")), "{}").await, gone(what), "{id}");
    }
    let no_uri = "uri is not an absolute URI of RFC 3986";
    let too_long = format!("x:{}", "a".repeat(3_000));
    for (uri, expected) in [
        ("", no_uri),
        ("a", no_uri),
        ("/a", no_uri),
        ("//h/a", no_uri),
        ("x:a b", no_uri),
        ("x:%zz", no_uri),
        ("x:%2", no_uri),
        ("x:\0", no_uri),
        ("x:\n", no_uri),
        ("x:ä b", no_uri),
        ("ä:x", no_uri),
        ("1x:a", no_uri),
        ("x:[", no_uri),
        ("x:\u{202e}", no_uri),
        (&too_long, "uri is longer than 2048 bytes"),
    ] {
        let uri = encode(uri);
        let body = r#"{"name":"n","contents":[]}"#;
        for (method, rest) in [
            ("PUT", ""),
            ("GET", ""),
            ("DELETE", ""),
            ("PUT", "/content"),
            ("GET", "/content"),
            ("POST", "/touch"),
        ] {
            let path = format!("/agents/a/resources{rest}?uri={uri}");
            assert_eq!(
                fixture.admin((method, &path), body).await,
                invalid(expected),
                "{method} {rest} {uri}"
            );
        }
    }
    for raw in ["x:%zz", "x:%FF", "x:+", "x:%"] {
        let path = format!("/agents/a/resources?uri={raw}");
        assert_eq!(fixture.admin(("GET", &path), "").await, invalid(no_uri), "{raw}");
    }
    assert!(fixture.check_unaffected().await > 110);
}

#[tokio::test]
async fn unsupported_http_method_is_answered_with_allow() {
    let mut fixture = Fixture::new().await;
    for (method, path, allowed) in [
        ("PUT", "/tenants", "POST,GET,HEAD"),
        ("BREW", "/agents/a", "GET,HEAD,PATCH,DELETE"),
        ("GET", "/keys/x", "PATCH,DELETE"),
        ("GET", "/keys/x/rotate", "POST"),
        ("POST", "/agents/a/resources", "GET,HEAD,PUT,DELETE"),
        ("DELETE", "/agents/a/resources/content", "PUT,GET,HEAD"),
        ("PUT", "/agents/a/resources/touch", "POST"),
        ("TRACE", "/agents", "POST,GET,HEAD"),
    ] {
        let expected = crate::support::answers::method_not_allowed(allowed, true);
        assert_eq!(fixture.admin((method, path), "").await, expected, "{method} {path}");
    }
    fixture.check_unaffected().await;
}
