//! Invalid resource templates.

use super::{Fixture, invalid};
use crate::support::answers::problem;
use crate::support::app::encode;

fn template(text: &str) -> String {
    format!("/agents/a/templates?uriTemplate={}", encode(text))
}

#[tokio::test]
async fn ambiguous_uri_templates_are_refused() {
    let mut fixture = Fixture::new().await;
    for (text, wrong) in [
        ("x:{a}{b}", "has a and b side by side: put a literal between them, such as /"),
        ("x:{a", "holds a brace without its partner"),
        ("{+a}", "does not begin with a scheme as literal text, as file: in file:///{path}"),
        ("", "does not begin with a scheme as literal text, as file: in file:///{path}"),
        (
            "x:{a:3}",
            "uses a modifier in {a}: templates up to level 3 of RFC 6570 are served, without :3 and *",
        ),
        ("x:{a}/{a}", "names the variable a twice"),
        ("x:/../{a}", "has a path segment .., which no matched URI may have"),
        ("x:\0{a}", "holds '\\0', which no URI may hold: percent-encode it"),
        (&format!("x:{}{{a}}", "b".repeat(510)), "is longer than 512 bytes"),
    ] {
        let path = template(text);
        let body = r#"{"name":"n","template":""}"#;
        for (method, body) in [("PUT", body), ("GET", ""), ("DELETE", "")] {
            let answer = fixture.admin((method, &path), body).await;
            assert_eq!(answer, invalid(&format!("uriTemplate {wrong}")), "{method} {text}");
        }
    }
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn invalid_templates_are_refused() {
    let mut fixture = Fixture::new().await;
    let path = template("x:{a}/{b}");
    let put = ("PUT", path.as_str());
    let no_lists = "completions must be an object of lists of text, by the names of variables";
    let long = format!(r#""completions":{{"a":["{}"]}}"#, "a".repeat(65_536));
    for (members, detail) in [
        (r#""annotations":[]"#, "annotations must be an object"),
        (r#""icons":[{"src":"relative"}]"#, "icons[0] is not an icon as the specification defines"),
        (r#""_meta":{"a":1,"\u0061":2}"#, "_meta contains an object with a duplicate member"),
        (r#""mimeType":"text""#, "mimeType is not a MIME type"),
        (r#""uriTemplate":"x:{b}""#, "uriTemplate differs from the one in the query"),
        (r#""completions":[]"#, no_lists),
        (r#""completions":{"a":"1"}"#, no_lists),
        (r#""completions":{"a":[1]}"#, no_lists),
        (r#""completions":{"a":null}"#, no_lists),
        (r#""completions":{"c":[]}"#, "completions: c is not a variable of the template"),
        (r#""completions":{"a":[],"\u0061":[]}"#, "completions contains an object with a duplicate member"),
        (r#""completions":{"a":["\u0000"]}"#, "completions contains a NUL character"),
        (&long, "completions is longer than 65536 bytes"),
    ] {
        let body = format!(r#"{{"name":"n",{members},"template":""}}"#);
        assert_eq!(fixture.admin(put, body).await, invalid(detail), "{}", &members[..members.len().min(60)]);
    }
    for (body, detail) in [
        (r#"{"template":""}"#, "missing field `name` at line 1 column 15"),
        (r#"{"name":"n"}"#, "missing field `template` at line 1 column 12"),
        (
            r#"{"name":"","template":""}"#,
            "name: a name or title must have 1 to 512 bytes, not 0 at line 1 column 10",
        ),
        (
            r#"{"name":"n","template":"","contents":[]}"#,
            "unknown field `contents`, expected one of `uriTemplate`, `name`, `title`, `description`, `mimeType`, \
             `annotations`, `icons`, `_meta`, `labels`, `completions`, `template`, `source` at line 1 column 36",
        ),
        (
            r#"{"name":"n","template":["a"]}"#,
            "template: invalid type: sequence, expected a string at line 1 column 23",
        ),
    ] {
        assert_eq!(fixture.admin(put, body).await, invalid(detail), "{body}");
    }
    let huge = format!(r#"{{"name":"n","template":"{}"}}"#, "a".repeat(1 << 20));
    let too_large = problem(413, "payload_too_large", "the body is longer than 1048576 bytes");
    assert_eq!(fixture.admin(put, huge).await, too_large);
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn unrenderable_template_bodies_are_refused_with_their_line() {
    let mut fixture = Fixture::new().await;
    let path = template("x:{a}/{b}");
    let long = "a".repeat(65_537);
    let forever = "{% for a in [1,2,3,4,5,6,7,8,9,10] %}".repeat(6) + "." + &"{% endfor %}".repeat(6);
    let twice = "{% for x in [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20] %}".to_owned()
        + &"a".repeat(60_000)
        + "{% endfor %}";
    for (body, detail) in [
        (r"a\u0000b", "template contains a NUL character"),
        ("{{ c }}", "template: line 1: `c` is not declared; declare it as an argument or correct the name"),
        (
            r"\n\n{{ a | indent }}",
            "template: line 3: the filter `indent` is not allowed; there are `default`, `upper`, `lower`, `trim`, \
             `length` and `tojson`",
        ),
        (
            "{% set a = b %}",
            "template: line 1: the statement `set` is not allowed; there are `if`, `elif`, `else` and `for`",
        ),
        (
            "{{ a",
            "template: line 1: the syntax is wrong: unexpected end of input, expected end of variable block",
        ),
        ("{% if a %}", "template: line 1: this `if` is never ended by `endif`"),
        (&long, "template: the template is 65537 bytes long; at most 65536 are allowed"),
        (
            &forever,
            "template: the template takes too much work to render; make its loops, lists and texts smaller",
        ),
        (
            &twice,
            "template: the rendered text is longer than 1048576 bytes; give shorter values or shorten the template",
        ),
    ] {
        let answer = fixture.admin(("PUT", &path), format!(r#"{{"name":"n","template":"{body}"}}"#)).await;
        assert_eq!(answer, invalid(detail), "{}", &body[..body.len().min(60)]);
    }
    fixture.check_unaffected().await;
}
