//! Invalid keys, agents and resources.

use super::{Fixture, invalid};
use crate::support::answers::problem;

#[tokio::test]
async fn invalid_keys_and_agents_are_refused() {
    let mut fixture = Fixture::new().await;
    let keys = ("POST", "/agents/a/keys");
    for (body, detail) in [
        (r#"{"scopes":[]}"#, "scopes must not be empty"),
        (
            r#"{"scopes":["root"]}"#,
            "scopes[0]: unknown scope `root`, expected mcp, registry or audit at line 1 column 18",
        ),
        (
            r#"{"scopes":["MCP"]}"#,
            "scopes[0]: unknown scope `MCP`, expected mcp, registry or audit at line 1 column 17",
        ),
        (
            r#"{"scopes":["mcp\u0000"]}"#,
            "scopes[0]: unknown scope `mcp\0`, expected mcp, registry or audit at line 1 column 23",
        ),
        (r#"{"scopes":"mcp"}"#, "scopes: must be a list"),
        (r#"{"scopes":{"mcp":true}}"#, "scopes: must be a list"),
        (
            r#"{"scopes":[{"mcp":null}]}"#,
            "scopes[0]: invalid type: map, expected a string at line 1 column 11",
        ),
        (r#"{"scopes":[null]}"#, "scopes[0]: invalid type: null, expected a string at line 1 column 15"),
        (r#"{"expiresAt":"2020-01-01T00:00:00Z"}"#, "expiresAt is in the past"),
        (
            r#"{"expiresAt":"9999-12-31T23:59:59-00:01"}"#,
            "expiresAt: expected a time such as 2026-07-28T12:00:00Z, or a date such as 2026-07-28 at line 1 column 41",
        ),
        (
            r#"{"expiresAt":"tomorrow"}"#,
            "expiresAt: expected a time such as 2026-07-28T12:00:00Z, or a date such as 2026-07-28 at line 1 column 24",
        ),
        (
            r#"{"expiresAt":"2999-02-30T00:00:00Z"}"#,
            "expiresAt: expected a time such as 2026-07-28T12:00:00Z, or a date such as 2026-07-28 at line 1 column 36",
        ),
        (
            r#"{"expiresAt":"2999-01-01T00:00"}"#,
            "expiresAt: expected a time such as 2026-07-28T12:00:00Z, or a date such as 2026-07-28 at line 1 column 32",
        ),
        (
            r#"{"expiresAt":4102444800}"#,
            "expiresAt: invalid type: integer `4102444800`, expected a string at line 1 column 23",
        ),
        (
            r#"{"expiresAt":[2999,1]}"#,
            "expiresAt: invalid type: sequence, expected a string at line 1 column 13",
        ),
    ] {
        assert_eq!(fixture.admin(keys, body).await, invalid(detail), "{body}");
    }
    let patch = ("PATCH", "/agents/a");
    for (body, detail) in [
        (
            r#"{"access":"unknown"}"#,
            "access: unknown access `unknown`, expected key or public at line 1 column 20",
        ),
        (
            r#"{"access":"Public"}"#,
            "access: unknown access `Public`, expected key or public at line 1 column 19",
        ),
        (r#"{"access":{"public":null}}"#, "access: invalid type: map, expected a string at line 1 column 10"),
        (r#"{"access":true}"#, "access: invalid type: boolean `true`, expected a string at line 1 column 14"),
        (
            r#"{"enabled":"true"}"#,
            "enabled: invalid type: string \"true\", expected a boolean at line 1 column 17",
        ),
        (r#"{"enabled":1}"#, "enabled: invalid type: integer `1`, expected a boolean at line 1 column 12"),
    ] {
        assert_eq!(fixture.admin(patch, body).await, invalid(detail), "{body}");
    }
    let id = all_keys(&fixture).await;
    let rotate = format!("/keys/{id}/rotate");
    for (body, detail) in [
        (r#"{"graceSeconds":-1}"#, "graceSeconds: must be a whole number"),
        (r#"{"graceSeconds":1.5}"#, "graceSeconds: must be a whole number"),
        (r#"{"graceSeconds":1e3}"#, "graceSeconds: must be a whole number"),
        (r#"{"graceSeconds":"60"}"#, "graceSeconds: must be a whole number"),
        (r#"{"graceSeconds":18446744073709551616}"#, "graceSeconds: must be a whole number"),
        (r#"{"graceSeconds":18446744073709551615}"#, "graceSeconds must be at most 2592000, thirty days"),
        (
            r#"{"graceSeconds":1e999}"#,
            "the body contains a lone surrogate or a number out of range at line 1 column 21",
        ),
        (r#"{"grace":1}"#, "unknown field `grace`, expected `graceSeconds` at line 1 column 8"),
        ("[60]", "invalid type: sequence, expected an object at line 1 column 0"),
    ] {
        assert_eq!(fixture.admin(("POST", &rotate), body).await, invalid(detail), "{body}");
    }
    assert_eq!(fixture.check_unaffected().await, 30);
}

async fn all_keys(fixture: &Fixture) -> String {
    let keys = fixture.replica.admin("GET", "/agents/a/keys", None).await.json();
    keys["items"][0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn resources_outside_the_specification_are_refused() {
    let mut fixture = Fixture::new().await;
    let put = ("PUT", "/agents/a/resources?uri=x:1");
    let long = format!(r#""_meta":{{"a":"{}"}}"#, "a".repeat(65_536));
    for (members, detail) in [
        (r#""annotations":[]"#, "annotations must be an object"),
        (r#""annotations":"x""#, "annotations must be an object"),
        (r#""annotations":{"priority":1.1}"#, "annotations.priority must be a number from 0 to 1"),
        (r#""annotations":{"priority":-0.1}"#, "annotations.priority must be a number from 0 to 1"),
        (r#""annotations":{"priority":"1"}"#, "annotations.priority must be a number from 0 to 1"),
        (r#""annotations":{"priority":null}"#, "annotations.priority must be a number from 0 to 1"),
        (
            r#""annotations":{"audience":"user"}"#,
            "annotations.audience must be a list of `user` and `assistant`",
        ),
        (
            r#""annotations":{"audience":["robot"]}"#,
            "annotations.audience must be a list of `user` and `assistant`",
        ),
        (
            r#""annotations":{"lastModified":"yesterday"}"#,
            "annotations.lastModified must be a time such as 2027-01-31T12:00:00Z",
        ),
        (
            r#""annotations":{"lastModified":0}"#,
            "annotations.lastModified must be a time such as 2027-01-31T12:00:00Z",
        ),
        (r#""annotations":{"colour":"red"}"#, "annotations: unknown member `colour`"),
        (
            r#""annotations":{"priority":2,"priority":1}"#,
            "annotations contains an object with a duplicate member",
        ),
        (
            r#""annotations":{"priority":1e999}"#,
            "annotations contains a lone surrogate or a number out of range",
        ),
        (r#""icons":{}"#, "icons must be a list"),
        (r#""icons":[1]"#, "icons[0] is not an icon as the specification defines"),
        (r#""icons":[{}]"#, "icons[0] is not an icon as the specification defines"),
        (r#""icons":[{"src":"a:b"}]"#, "icons[0].src must be an http, https or data URI"),
        (
            r#""icons":[{"src":"data:,a"},{"src":"relative"}]"#,
            "icons[1] is not an icon as the specification defines",
        ),
        (
            r#""icons":[{"src":"data:,a","sizes":"48x48"}]"#,
            "icons[0] is not an icon as the specification defines",
        ),
        (
            r#""icons":[{"src":"data:,a","theme":"dim"}]"#,
            "icons[0] is not an icon as the specification defines",
        ),
        (
            r#""icons":[{"src":"data:,a","mimeType":1}]"#,
            "icons[0] is not an icon as the specification defines",
        ),
        (
            r#""icons":[{"src":"data:,a","src":"data:,b"}]"#,
            "icons contains an object with a duplicate member",
        ),
        (r#""icons":[{"src":"data:,a\u0000"}]"#, "icons contains a NUL character"),
        (r#""_meta":[]"#, "_meta must be an object"),
        (r#""_meta":"x""#, "_meta must be an object"),
        (r#""_meta":{"a":"\ud800"}"#, "_meta contains a lone surrogate or a number out of range"),
        (r#""_meta":{"\udfff":1}"#, "_meta contains a lone surrogate or a number out of range"),
        (r#""_meta":{"a":[{"b":"\u0000"}]}"#, "_meta contains a NUL character"),
        (r#""_meta":{"\u0000":1}"#, "_meta contains a NUL character"),
        (r#""_meta":{"a":{"b":1,"\u0062":2}}"#, "_meta contains an object with a duplicate member"),
        (&long, "_meta is longer than 65536 bytes"),
        (r#""mimeType":"text""#, "mimeType is not a MIME type"),
        (r#""mimeType":"text/plain; charset""#, "mimeType is not a MIME type"),
        (r#""mimeType":"text/plain\r\nX-A: b""#, "mimeType is not a MIME type"),
        (r#""uri":"x:2""#, "uri differs from the one in the query"),
    ] {
        let body = format!(r#"{{"name":"n",{members},"contents":[]}}"#);
        assert_eq!(fixture.admin(put, body).await, invalid(detail), "{}", &members[..members.len().min(60)]);
    }
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn invalid_contents_are_refused() {
    let mut fixture = Fixture::new().await;
    let put = ("PUT", "/agents/a/resources?uri=x:1");
    let neither = "contents[0] must have either text or blob";
    let base64 =
        |why: &str| format!("contents[0].blob: not base64{why}; expected the standard alphabet of RFC 4648");
    let no_uri = "contents[0].uri is not an absolute URI of RFC 3986";
    let long = format!(r#"[{{"text":"","uri":"x:{}"}}]"#, "a".repeat(3_000));
    let meta = |bytes: usize| format!(r#"{{"k":"{}"}}"#, "v".repeat(bytes - 8));
    for (contents, detail) in [
        ("null", "contents: must be a list"),
        ("{}", "contents: must be a list"),
        ("\"text\"", "contents: must be a list"),
        ("[1]", "contents[0]: invalid type: integer `1`, expected an object at line 1 column 25"),
        ("[null]", "contents[0]: invalid type: null, expected an object at line 1 column 28"),
        (
            r#"[["text",null,null,null]]"#,
            "contents[0]: invalid type: sequence, expected an object at line 1 column 24",
        ),
        ("[{}]", neither),
        (r#"[{"text":null,"blob":null}]"#, neither),
        (r#"[{"text":"a","blob":"YQ=="}]"#, neither),
        (r#"[{"text":"","blob":""}]"#, neither),
        (r#"[{"text":"a"},{}]"#, "contents[1] must have either text or blob"),
        (
            r#"[{"text":1}]"#,
            "contents[0].text: invalid type: integer `1`, expected a string at line 1 column 33",
        ),
        (r#"[{"text":"a\u0000b"}]"#, "contents[0].text contains a NUL character; send it as blob"),
        (
            r#"[{"text":"\ud800"}]"#,
            "the body contains a lone surrogate or a number out of range at line 1 column 40",
        ),
        (r#"[{"blob":"YQ"}]"#, &base64(": expected = at its end")),
        (
            r#"[{"blob":"YQ=="},{"blob":"Y"}]"#,
            &base64(": 1 characters are not a multiple of 4").replace("[0]", "[1]"),
        ),
        (r#"[{"blob":"YR=="}]"#, &base64(" at byte 1")),
        (r#"[{"blob":"Y Q=="}]"#, &base64(" at byte 1")),
        (r#"[{"blob":"YQ==\n"}]"#, &base64(" at byte 4")),
        (r#"[{"blob":"-_8="}]"#, &base64(" at byte 0")),
        (r#"[{"blob":"ä"}]"#, &base64(" at byte 0")),
        (r#"[{"text":"","uri":"relative"}]"#, no_uri),
        (r#"[{"text":"","uri":""}]"#, no_uri),
        (r#"[{"text":"","uri":"x:\u0000"}]"#, no_uri),
        (r#"[{"text":"","uri":"x:%zz"}]"#, no_uri),
        (&long, "contents[0].uri is longer than 2048 bytes"),
        (r#"[{"text":"","mimeType":"nonsense"}]"#, "contents[0].mimeType is not a MIME type"),
        (r#"[{"text":"","_meta":[]}]"#, "contents[0]._meta must be an object"),
        (r#"[{"text":""},{"blob":"","_meta":"x"}]"#, "contents[1]._meta must be an object"),
        (
            &format!(r#"[{{"text":"","_meta":{}}}]"#, meta(65_537)),
            "contents[0]._meta is longer than 65536 bytes",
        ),
        (
            &format!(r#"[{{"text":"","_meta":{0}}},{{"text":"","_meta":{0}}}]"#, meta(32_769)),
            "contents: all _meta together exceed 65536 bytes",
        ),
        (r#"[{"text":"a","text":"b"}]"#, "contents[0]: duplicate field `text` at line 1 column 42"),
    ] {
        let body = format!(r#"{{"name":"n","contents":{contents}}}"#);
        assert_eq!(
            fixture.admin(put, body).await,
            invalid(detail),
            "{}",
            &contents[..contents.len().min(60)]
        );
    }
    let missing = "missing field `contents` at line 1 column 12";
    assert_eq!(fixture.admin(put, r#"{"name":"n"}"#).await, invalid(missing));
    let deep =
        format!(r#"{{"name":"n","_meta":{}{},"contents":[]}}"#, "{\"a\":".repeat(64) + "1", "}".repeat(64));
    let too_deep = problem(400, "invalid_request", "the body nests deeper than 64 levels");
    assert_eq!(fixture.admin(put, deep).await, too_deep);
    let operator = format!("Bearer {}", fixture.replica.operator);
    for essence in
        ["nonsense", "text/", "/", "*/*", "text/*", "text/plain; a", &format!("a/{}", "b".repeat(300))]
    {
        let headers = [("authorization", operator.as_str()), ("content-type", essence)];
        let path = "/admin/v1/agents/a/resources/content?uri=x:1";
        let answer = fixture.send("PUT", path, &headers, "bytes").await;
        assert_eq!(answer, invalid("Content-Type is not a MIME type"), "{essence}");
    }
    fixture.check_unaffected().await;
}
