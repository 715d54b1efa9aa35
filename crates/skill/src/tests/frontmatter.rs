//! Frontmatter: what is read, and what is refused.

use crate::Frontmatter;

fn json(yaml: &str) -> String {
    let text = format!("---\nname: a\ndescription: b\n{yaml}---\nbody\n");
    let read = Frontmatter::of(text.as_bytes()).unwrap_or_else(|error| panic!("{yaml}: {error}"));
    serde_json::to_string(read.value()).unwrap()
}

#[test]
fn frontmatter_is_json_in_the_order_and_with_the_types_written() {
    for (yaml, members) in [
        ("", ""),
        ("z: 1\na: 2\n", r#","z":1,"a":2"#),
        ("license: Apache-2.0 # comment\n", r#","license":"Apache-2.0""#),
        ("n: 1.10\nt: 2026-01-02\nb: yes\nf: .5\n", r#","n":1.1,"t":"2026-01-02","b":"yes","f":0.5"#),
        ("x: ''\ny: \"\\u4e2d\\n\"\nz: 'it''s'\n", r#","x":"","y":"中\n","z":"it's""#),
        ("x:\ny: ~\n", r#","x":null,"y":null"#),
        ("x: |\n  one\n    two\n\n  three\ny: >-\n  a\n  b\n", r#","x":"one\n  two\n\nthree\n","y":"a b""#),
        ("x: one\n  two\n\n  three\n", r#","x":"one two\nthree""#),
        ("x: [a, 1, [true, null], {k: v, 'q': \"w\"}, ]\n", r#","x":["a",1,[true,null],{"k":"v","q":"w"}]"#),
        ("x:\n- a\n- - b\n  - c\n- k: v\n  l: w\n", r#","x":["a",["b","c"],{"k":"v","l":"w"}]"#),
        ("metadata:\n  author: me\n  version: \"1.0\"\n", r#","metadata":{"author":"me","version":"1.0"}"#),
        ("allowed-tools: Bash(git:*) Read\n", r#","allowed-tools":"Bash(git:*) Read""#),
        ("x: a:b#c ? d & e * f\n", r#","x":"a:b#c ? d & e * f""#),
        ("x: |\n  & anchor\n  * alias\n  ? key\n  --- x\n", r#","x":"& anchor\n* alias\n? key\n--- x\n""#),
        ("<<: a\n", r#","<<":"a""#),
        ("\"1\": a\n'true': b\n", r#","1":"a","true":"b""#),
        ("名前: 値\n", r#","名前":"値""#),
    ] {
        assert_eq!(json(yaml), format!(r#"{{"name":"a","description":"b"{members}}}"#), "{yaml}");
    }
    let crlf =
        Frontmatter::of("\u{feff}---\r\nname: a\r\ndescription: |\r\n  b\r\n  c\r\n--- \t\r\n".as_bytes())
            .unwrap();
    assert_eq!((crlf.name(), crlf.description()), ("a", "b\nc\n"));
    assert!(Frontmatter::of(b"---\nname: a\ndescription: b\n---").is_ok());
}

#[test]
fn other_frontmatter_is_refused_with_a_stable_text() {
    let large = format!("x: {}\n", "y".repeat(65_536));
    let flow = format!("x: {}{}\n", "[".repeat(33), "]".repeat(33));
    for (yaml, error) in [
        ("x: &a 1\n", "line 4: anchors are not supported in frontmatter"),
        ("x: *a\n", "line 4: aliases are not supported in frontmatter"),
        ("x: &a 1\ny: *a\n", "line 4: anchors are not supported in frontmatter"),
        ("x: !!str 1\n", "line 4: tags are not supported in frontmatter"),
        ("x: ! 1\n", "line 4: tags are not supported in frontmatter"),
        ("x: !<tag:yaml.org,2002:str> 1\n", "line 4: tags are not supported in frontmatter"),
        ("? x\n: y\n", "line 4: keys with ? are not supported in frontmatter"),
        ("x: {? a : b}\n", "line 4: keys with ? are not supported in frontmatter"),
        ("1: y\n", "line 4: a key is not a string; quote it"),
        ("true: y\n", "line 4: a key is not a string; quote it"),
        ("~: y\n", "line 4: a key is not a string; quote it"),
        ("1.5: y\n", "line 4: a key is not a string; quote it"),
        ("[a]: y\n", "line 4: a key is not a string; quote it"),
        ("x: {1: y}\n", "line 4: a key is not a string; quote it"),
        ("x: \"a\n  b\"\n", "line 4: quoted values of several lines are not supported in frontmatter"),
        ("x: 'a\n  b'\n", "line 4: quoted values of several lines are not supported in frontmatter"),
        ("x: [a,\n  b]\n", "line 5: flow collections of several lines are not supported in frontmatter"),
        (
            "x: {a: b,\n  c: d}\n",
            "line 5: flow collections of several lines are not supported in frontmatter",
        ),
        (
            "x: [a: b]\n",
            "line 4: mappings in a flow sequence without braces are not supported in frontmatter",
        ),
        ("x: |2\n    a\n", "line 4: indentation indicators are not supported in frontmatter"),
        ("x: >-1\n  a\n", "line 4: indentation indicators are not supported in frontmatter"),
        ("x: # 1\n  |2\n    a\n", "line 4: indentation indicators are not supported in frontmatter"),
        ("x: 1\nx: 2\n", "line 5: duplicate key \"x\""),
        ("x: {a: 1, a: 2}\n", "line 4: duplicate key \"a\""),
        ("x: .inf\n", "line 4: \".inf\" is not a number of JSON; quote it"),
        ("x: -.INF\n", "line 4: \"-.INF\" is not a number of JSON; quote it"),
        ("x: .nan\n", "line 4: \".nan\" is not a number of JSON; quote it"),
        ("x: 1e999\n", "line 4: \"1e999\" is not a number of JSON; quote it"),
        ("__proto__: 1\n", "line 4: the key __proto__ is not supported in frontmatter"),
        ("x: {\"__proto__\": 1}\n", "line 4: the key __proto__ is not supported in frontmatter"),
        (&*flow, "line 4: nested more than 32 levels deep"),
        ("...\n", "line 4: markers of documents are not supported in frontmatter"),
        ("--- a\n", "line 4: markers of documents are not supported in frontmatter"),
        ("x: a\rb\n", "line 4: carriage returns without a line feed are not supported in frontmatter"),
        (&*large, "has frontmatter of more than 65536 bytes"),
        ("name: b\n", "line 4: duplicate key \"name\""),
        ("compatibility: ''\n", "frontmatter: compatibility must be a string of 1 to 500 characters"),
        ("compatibility: 5\n", "frontmatter: compatibility must be a string of 1 to 500 characters"),
        ("metadata: a\n", "frontmatter: metadata must map strings to strings"),
        ("metadata: {a: 1}\n", "frontmatter: metadata must map strings to strings"),
        ("metadata: {a: null}\n", "frontmatter: metadata must map strings to strings"),
    ] {
        let text = format!("---\nname: a\ndescription: b\n{yaml}---\n");
        let refused = Frontmatter::of(text.as_bytes()).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some(error), "{}", yaml.get(..80).unwrap_or(yaml));
    }
}

#[test]
fn files_without_the_required_fields_are_refused() {
    for (text, error) in [
        ("", "must begin with a line ---"),
        ("name: a\n", "must begin with a line ---"),
        ("\n---\n", "must begin with a line ---"),
        ("--- \n", "must begin with a line ---"),
        ("---\nname: a\n", "has no line --- that closes the frontmatter"),
        ("---\nname: a\n ---\n", "has no line --- that closes the frontmatter"),
        ("---\n---\n", "frontmatter: name is missing"),
        ("---\n# nothing\n---\n", "frontmatter: name is missing"),
        ("---\n- a\n---\n", "line 2: the frontmatter must be a mapping of keys to values"),
        ("---\na\n---\n", "line 2: the frontmatter must be a mapping of keys to values"),
        ("---\n%YAML 1.2\n---\n", "line 2: "),
        ("---\nname: a\n---\n", "frontmatter: description is missing"),
        (
            "---\nname: a\ndescription:\n---\n",
            "frontmatter: description must be a string of 1 to 1024 characters",
        ),
        (
            "---\nname: a\ndescription: 1\n---\n",
            "frontmatter: description must be a string of 1 to 1024 characters",
        ),
        (
            "---\nname: 1\ndescription: a\n---\n",
            "frontmatter: name must have 1 to 64 of a-z and 0-9, with single hyphens between them",
        ),
        (
            "---\nname: A\ndescription: a\n---\n",
            "frontmatter: name must have 1 to 64 of a-z and 0-9, with single hyphens between them",
        ),
        (
            "---\nname: a--b\ndescription: a\n---\n",
            "frontmatter: name must have 1 to 64 of a-z and 0-9, with single hyphens between them",
        ),
        ("---\nname: a\n\tdescription: b\n---\n", "line 2: "),
        ("---\nname: 'a\n---\n", "line 3: "),
        ("---\nname: a: b\n---\n", "line 2: "),
        ("---\nname: a\0\n---\n", "is not text in UTF-8 without NUL"),
    ] {
        let refused = Frontmatter::of(text.as_bytes()).err().map(|error| error.to_string());
        let refused = refused.unwrap_or_else(|| panic!("{text:?} is accepted"));
        assert!(
            refused == error || error.ends_with(": ") && refused.starts_with(error),
            "{text:?}: {refused}"
        );
    }
    assert!(Frontmatter::of(b"---\nname: \xff\n---\n").is_err());
    let text = |description: &str| format!("---\nname: a\ndescription: {description}\n---\n");
    assert!(Frontmatter::of(text(&"x".repeat(1_025)).as_bytes()).is_err());
    assert!(Frontmatter::of(text(&"字".repeat(1_024)).as_bytes()).is_ok(), "characters are counted");
}

#[test]
fn thirty_two_levels_are_read() {
    let nested = format!("x: {}{}\n", "[".repeat(32), "]".repeat(32));
    assert_eq!(
        json(&nested),
        format!(r#"{{"name":"a","description":"b","x":{}{}}}"#, "[".repeat(32), "]".repeat(32))
    );
}
