//! Invalid manifests: each is refused as a whole, with the path of the error.

use super::{Fixture, invalid};
use crate::support::answers::problem;

const PUT: (&str, &str) = ("PUT", "/agents/a/manifest");

#[tokio::test]
async fn invalid_manifests_are_refused() {
    let mut fixture = Fixture::new().await;
    for (body, detail) in [
        ("{}", "missing field `apiVersion` at line 1 column 2"),
        (r#"{"apiVersion":"waggle/v2"}"#, "apiVersion must be waggle/v1"),
        (r#"{"apiVersion":"waggle/v1","agent":"b"}"#, "agent differs from the one in the path"),
        (
            r#"{"apiVersion":"waggle/v1","tools":[]}"#,
            "unknown field `tools`, expected one of `apiVersion`, `agent`, `resources`, `templates`, `prompts`, `skills`, \
             `mounts` at line 1 column 33",
        ),
        (r#"{"apiVersion":"waggle/v1","resources":null}"#, "resources: must be a list"),
        (
            r#"{"apiVersion":"waggle/v1","resources":[["x:1"]]}"#,
            "resources[0]: invalid type: sequence, expected an object at line 1 column 39",
        ),
        (r#"["waggle/v1"]"#, "invalid type: sequence, expected an object at line 1 column 0"),
    ] {
        assert_eq!(fixture.admin(PUT, body).await, invalid(detail), "{body}");
    }
    let parse_error = "the body is not JSON: EOF while parsing an object at line 1 column 1";
    assert_eq!(fixture.admin(PUT, "{").await, problem(400, "parse_error", parse_error));
    let query = ("PUT", "/agents/a/manifest?dryRun=1");
    let wrong = "query: dryRun: provided string was not `true` or `false`";
    assert_eq!(fixture.admin(query, r#"{"apiVersion":"waggle/v1"}"#).await, invalid(wrong));
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn manifest_with_one_error_names_it_and_changes_nothing() {
    let mut fixture = Fixture::new().await;
    let resource = r#"{"uri":"x:1","name":"n","contents":[]}"#;
    let template = r#"{"uriTemplate":"y:{a}","name":"n","template":""}"#;
    let prompt = r#"{"name":"p","messages":[{"role":"user","content":{"type":"text","text":"{{ a }}"}}]}"#;
    let good_prompt = prompt.replace("{{ a }}", "");
    let twice = |what: &str| format!("{what},{what}");
    let undeclared = "line 1: `a` is not declared; declare it as an argument or correct the name";
    let tie = "conflicts with y:{a}: some URI matches both, and neither has more literal text";
    for (list, items, detail) in [
        ("resources", r#"{"name":"n","contents":[]}"#.to_owned(), "resources[0]: uri is missing".to_owned()),
        (
            "resources",
            format!(r#"{resource},{{"uri":"relative","name":"n","contents":[]}}"#),
            "resources[1] (relative): uri is not an absolute URI of RFC 3986".to_owned(),
        ),
        (
            "resources",
            r#"{"uri":"x:2","name":"n","contents":[{"blob":"Y"}]}"#.to_owned(),
            "resources[0] (x:2): contents[0].blob: not base64: 1 characters are not a multiple of 4; expected the \
             standard alphabet of RFC 4648"
                .to_owned(),
        ),
        ("resources", twice(resource), "resources: duplicate x:1".to_owned()),
        (
            "templates",
            r#"{"name":"n","template":""}"#.to_owned(),
            "templates[0]: uriTemplate is missing".to_owned(),
        ),
        (
            "templates",
            template.replace("{a}", "{a}{b}"),
            "templates[0] (y:{a}{b}): uriTemplate has a and b side by side: put a literal between them, such as /"
                .to_owned(),
        ),
        (
            "templates",
            format!("{template},{}", template.replace("y:", "z:").replace(r#"e":"""#, r#"e":"{{ b }}""#)),
            format!("templates[1] (z:{{a}}): template: {}", undeclared.replace("`a`", "`b`")),
        ),
        ("templates", twice(template), "templates: duplicate y:{a}".to_owned()),
        (
            "templates",
            format!("{template},{}", template.replace("{a}", "{b}")),
            format!("templates[1] (y:{{b}}): uriTemplate {tie}"),
        ),
        ("prompts", r#"{"messages":[]}"#.to_owned(), "prompts[0]: name is missing".to_owned()),
        ("prompts", good_prompt.replace("\"p\"", "\"\""), "prompts[0]: name must have 1 to 512 bytes".to_owned()),
        (
            "prompts",
            good_prompt.replace("\"p\"", "\"..\""),
            "prompts[0] (..): name: a URL cannot contain `.` or `..`".to_owned(),
        ),
        ("prompts", prompt.to_owned(), format!("prompts[0] (p): messages[0]: {undeclared}")),
        ("prompts", twice(&good_prompt), "prompts: duplicate p".to_owned()),
    ] {
        // Beside it, a valid definition that would be written.
        let others = ["resources", "templates", "prompts"].into_iter().filter(|other| *other != list);
        let others: Vec<_> = others
            .map(|other| match other {
                "resources" => format!(r#""resources":[{}]"#, resource.replace("x:1", "x:new")),
                "templates" => format!(r#""templates":[{}]"#, template.replace("y:", "new:")),
                _ => format!(r#""prompts":[{good_prompt}]"#),
            })
            .collect();
        let body = format!(r#"{{"apiVersion":"waggle/v1",{},"{list}":[{items}]}}"#, others.join(","));
        assert_eq!(fixture.admin(PUT, body.clone()).await, invalid(&detail), "{items}");
        let dry = ("PUT", "/agents/a/manifest?dryRun=true");
        assert_eq!(fixture.admin(dry, body).await, invalid(&detail), "{items}");
    }
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn manifest_beyond_the_limits_of_an_agent_is_refused() {
    let mut fixture = Fixture::new().await;
    let templates: Vec<_> =
        (0..1_001).map(|n| format!(r#"{{"uriTemplate":"t{n}:{{a}}","name":"n","template":""}}"#)).collect();
    let body = format!(r#"{{"apiVersion":"waggle/v1","templates":[{}]}}"#, templates.join(","));
    assert_eq!(fixture.admin(PUT, body).await, invalid("templates: the agent may have at most 1000"));
    let text = "a".repeat(20 << 20);
    let body = format!(
        r#"{{"apiVersion":"waggle/v1","resources":[{{"uri":"x:1","name":"n","contents":[{{"text":"{text}"}}]}}]}}"#
    );
    let too_long = "resources[0] (x:1): its contents exceed 16777216 bytes";
    assert_eq!(fixture.admin(PUT, body).await, invalid(too_long));
    fixture.check_unaffected().await;
}
