//! Invalid prompts.

use super::{Fixture, invalid};
use crate::support::answers::problem;
use crate::support::app::encode;

const PUT: (&str, &str) = ("PUT", "/agents/a/prompts/p");

#[tokio::test]
async fn invalid_prompt_names_are_refused() {
    let mut fixture = Fixture::new().await;
    let body = r#"{"messages":[{"role":"user","content":{"type":"text","text":""}}]}"#;
    for (name, wrong) in [
        ("a\0", "holds a control character"),
        ("a\nb", "holds a control character"),
        (&"a".repeat(513), "must have 1 to 512 bytes"),
    ] {
        let path = format!("/agents/a/prompts/{}", encode(name));
        for (method, body) in [("PUT", body), ("GET", ""), ("DELETE", "")] {
            let answer = fixture.admin((method, &path), body).await;
            assert_eq!(answer, invalid(&format!("name {wrong}")), "{method} {name}");
        }
    }
    let not_text = fixture.admin(("PUT", "/agents/a/prompts/%FF"), body).await;
    assert_eq!(not_text, problem(404, "not_found", "no such path"));
    let other = body.replace(r#"{"messages""#, r#"{"name":"q","messages""#);
    assert_eq!(fixture.admin(PUT, other).await, invalid("name differs from the one in the path"));
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn invalid_prompt_arguments_are_refused() {
    let mut fixture = Fixture::new().await;
    let many = |count: usize, each: &str| {
        let arguments: Vec<_> = (0..count).map(|n| format!(r#"{{"name":"a{n}"{each}}}"#)).collect();
        format!("[{}]", arguments.join(","))
    };
    let long = "a".repeat(33_000);
    let completions = format!(r#","completions":["{long}"]"#);
    let description = format!(r#","description":"{}""#, "a".repeat(16_000));
    for (arguments, detail) in [
        ("{}", "arguments: must be a list"),
        ("[1]", "arguments[0]: invalid type: integer `1`, expected an object at line 1 column 15"),
        (r#"[["a"]]"#, "arguments[0]: invalid type: sequence, expected an object at line 1 column 14"),
        ("[{}]", "arguments[0]: missing field `name` at line 1 column 16"),
        (
            r#"[{"name":""}]"#,
            "arguments[0].name: a name or title must have 1 to 512 bytes, not 0 at line 1 column 25",
        ),
        (
            r#"[{"name":"a\u0000"}]"#,
            "arguments[0].name: a name or title contains a NUL character at line 1 column 32",
        ),
        (r#"[{"name":"a"},{"name":"\u0061"}]"#, "arguments: duplicate name a"),
        (
            r#"[{"name":"a","type":"string"}]"#,
            "arguments[0]: unknown field `type`, expected one of `name`, `title`, `description`, `required`, `completions`, \
             `closed` at line 1 column 32",
        ),
        (
            r#"[{"name":"a","required":1}]"#,
            "arguments[0].required: invalid type: integer `1`, expected a boolean at line 1 column 38",
        ),
        (
            r#"[{"name":"a","completions":["b","\u0000"]}]"#,
            "arguments[0].completions[1] contains a NUL character",
        ),
        (
            r#"[{"name":"a","closed":"yes"}]"#,
            "arguments[0].closed: invalid type: string \"yes\", expected a boolean at line 1 column 40",
        ),
        (
            r#"[{"name":"a","closed":true}]"#,
            "arguments[0].closed needs completions, the values to choose from",
        ),
        (
            r#"[{"name":"b"},{"name":"a","closed":true,"completions":[]}]"#,
            "arguments[1].closed needs completions, the values to choose from",
        ),
        (&many(101, ""), "arguments: at most 100"),
        (&many(2, &completions), "arguments: all completions together exceed 65536 bytes"),
        (&many(17, &description), "arguments exceed 262144 bytes"),
    ] {
        let body = format!(
            r#"{{"arguments":{arguments},"messages":[{{"role":"user","content":{{"type":"text","text":""}}}}]}}"#
        );
        let shown = &arguments[..arguments.len().min(60)];
        assert_eq!(fixture.admin(PUT, body).await, invalid(detail), "{shown}");
    }
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn invalid_prompt_messages_are_refused() {
    let mut fixture = Fixture::new().await;
    let message = |content: &str| format!(r#"[{{"role":"user","content":{content}}}]"#);
    let both =
        "messages[0].content.resource must have text or blob, or neither to refer to a registered resource";
    let meta = |within: &str| format!("messages[0].content.{within}_meta must be an object");
    let cases = [
        ("{}", "messages: must be a list".to_owned()),
        ("[]", "messages: expected 1 to 100".to_owned()),
        ("[7]", "messages[0]: invalid type: integer `7`, expected an object at line 1 column 14".to_owned()),
        (
            r#"[["user",{}]]"#,
            "messages[0]: invalid type: sequence, expected an object at line 1 column 13".to_owned(),
        ),
        (
            r#"[{"role":"system","content":{"type":"text","text":""}}]"#,
            "messages[0].role: unknown variant `system`, expected `user` or `assistant` at line 1 column 29"
                .to_owned(),
        ),
        (
            r#"[{"role":"user","content":"text"}]"#,
            "messages[0].content: invalid type: string \"text\", expected an object at line 1 column 44"
                .to_owned(),
        ),
        (
            r#"[{"role":"user","content":["text"]}]"#,
            "messages[0].content: invalid type: sequence, expected an object at line 1 column 38".to_owned(),
        ),
        (r#"[{"role":"user"}]"#, "messages[0]: missing field `content` at line 1 column 28".to_owned()),
    ];
    for (messages, detail) in cases {
        let answer = fixture.admin(PUT, format!(r#"{{"messages":{messages}}}"#)).await;
        assert_eq!(answer, invalid(&detail), "{messages}");
    }
    for (content, detail) in [
        (r#"{"type":"text","text":"a\u0000"}"#, "messages[0].content.text contains a NUL character"),
        (
            r#"{"type":"text","text":"","annotations":[]}"#,
            "messages[0].content.annotations must be an object",
        ),
        (
            r#"{"type":"text","text":"","annotations":{"priority":2}}"#,
            "messages[0].content.annotations.priority must be a number from 0 to 1",
        ),
        (r#"{"type":"text","text":"","_meta":[]}"#, &meta("")),
        (
            r#"{"type":"text","text":"","_meta":{"a":"\u0000"}}"#,
            "messages[0].content._meta contains a NUL character",
        ),
        (
            r#"{"type":"image","data":"YQ","mimeType":"image/png"}"#,
            "messages[0].content.data: not base64: expected = at its end; expected the standard alphabet of RFC 4648",
        ),
        (
            r#"{"type":"audio","data":"YQ==","mimeType":"audio"}"#,
            "messages[0].content.mimeType is not a MIME type",
        ),
        (
            r#"{"type":"image","data":"YQ==","mimeType":""}"#,
            "messages[0].content.mimeType: a MIME type must have 1 to 255 bytes, not 0",
        ),
        (
            r#"{"type":"resource_link","uri":"relative","name":"n"}"#,
            "messages[0].content.uri is not an absolute URI of RFC 3986",
        ),
        (
            r#"{"type":"resource_link","uri":"{{ a }}\u0000","name":"n"}"#,
            "messages[0].content.uri contains a NUL character",
        ),
        (
            r#"{"type":"resource_link","uri":"a:b","name":"\u0000"}"#,
            "messages[0].content.name contains a NUL character",
        ),
        (
            r#"{"type":"resource_link","uri":"a:b","name":"n","icons":[{}]}"#,
            "messages[0].content.icons[0] is not an icon as the specification defines",
        ),
        (
            r#"{"type":"resource_link","uri":"a:b","name":"n","mimeType":"a"}"#,
            "messages[0].content.mimeType is not a MIME type",
        ),
        (r#"{"type":"resource","resource":{"uri":"a:b","text":"","blob":""}}"#, both),
        (
            r#"{"type":"resource","resource":{"uri":"","text":""}}"#,
            "messages[0].content.resource.uri is not an absolute URI of RFC 3986",
        ),
        (
            r#"{"type":"resource","resource":{"uri":"a:b","blob":"Y"}}"#,
            "messages[0].content.resource.blob: not base64: 1 characters are not a multiple of 4; expected the standard \
             alphabet of RFC 4648",
        ),
        (
            r#"{"type":"resource","resource":{"uri":"a:b","text":"\u0000"}}"#,
            "messages[0].content.resource.text contains a NUL character",
        ),
        (
            r#"{"type":"resource","resource":{"uri":"a:b","mimeType":"a","text":""}}"#,
            "messages[0].content.resource.mimeType is not a MIME type",
        ),
        (r#"{"type":"resource","resource":{"uri":"a:b","_meta":7}}"#, &meta("resource.")),
        (
            r#"{"type":"text","text":"{{ c }}"}"#,
            "messages[0]: line 1: `c` is not declared; declare it as an argument or correct the name",
        ),
        (
            r#"{"type":"resource_link","uri":"a:b","name":"{{ c }}"}"#,
            "messages[0]: line 1: `c` is not declared; declare it as an argument or correct the name",
        ),
    ] {
        let answer = fixture.admin(PUT, format!(r#"{{"messages":{}}}"#, message(content))).await;
        assert_eq!(answer, invalid(detail), "{content}");
    }
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn prompt_messages_beyond_their_total_limit_are_refused() {
    let mut fixture = Fixture::new().await;
    let messages = |count: usize, text: &str| {
        let one = format!(r#"{{"role":"user","content":{{"type":"text","text":"{text}"}}}}"#);
        format!(r#"{{"messages":[{}]}}"#, vec![one; count].join(","))
    };
    assert_eq!(fixture.admin(PUT, messages(101, "")).await, invalid("messages: expected 1 to 100"));
    let loops = "{% for a in [1,2,3,4,5,6,7,8,9,10] %}".repeat(2) + "." + &"{% endfor %}".repeat(2);
    let too_much =
        "messages: the template takes too much work to render; make its loops, lists and texts smaller";
    assert_eq!(fixture.admin(PUT, messages(100, &loops)).await, invalid(too_much));
    let long = "{{ '' }}".to_owned() + &"a".repeat(60_000);
    let too_long = "messages: the rendered text is longer than 1048576 bytes; give shorter values or shorten the template";
    assert_eq!(fixture.admin(PUT, messages(20, &long)).await, invalid(too_long));
    // Without anything to render, the cost is low.
    let plain = messages(20, &"a".repeat(60_000));
    assert_eq!(fixture.admin(("PUT", "/agents/a/prompts/long"), plain).await["status"], 201);
    assert_eq!(fixture.admin(("DELETE", "/agents/a/prompts/long"), "").await["status"], 204);
}
