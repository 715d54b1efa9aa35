//! Bad uploads: each is refused with its exact answer, and nothing of it is stored.

use serde_json::{Value, json};
use tar::EntryType;

use super::{body, send, skill, skill_md, tar, zip};
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::{Builder, gateway};
use crate::support::cluster::database;

/// The JSON of a skill whose `SKILL.md` has this frontmatter.
fn with(frontmatter: &str) -> Value {
    json!({"files": [{"path": "SKILL.md", "text": format!("---\n{frontmatter}---\n")}]})
}

fn extended(yaml: &str) -> Value {
    with(&format!("name: s\ndescription: d\n{yaml}"))
}

#[tokio::test]
async fn bad_json_uploads_are_refused() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let file = |path: &str| json!({"files": [{"path": "SKILL.md", "text": skill_md("s")}, {"path": path, "text": ""}]});
    let unsupported =
        |line: usize, what: &str| format!("SKILL.md line {line}: {what} not supported in frontmatter");
    let description = "SKILL.md frontmatter: description must be a string of 1 to 1024 characters";
    let compatibility = "SKILL.md frontmatter: compatibility must be a string of 1 to 500 characters";
    let metadata = "SKILL.md frontmatter: metadata must map strings to strings";
    let name =
        "SKILL.md frontmatter: name must have 1 to 64 of a-z and 0-9, with single hyphens between them";
    let many: Vec<_> = (0..512).map(|n| json!({"path": format!("{n}"), "text": ""})).collect();
    let many = [vec![json!({"path": "SKILL.md", "text": skill_md("s")})], many].concat();
    let cases: Vec<(Value, String)> = vec![
        (json!({"files": []}), "SKILL.md is missing".into()),
        (json!({"files": [{"path": "skill.md", "text": skill_md("s")}]}), "SKILL.md is missing".into()),
        (json!({"files": [{"path": "s/SKILL.md", "text": skill_md("s")}]}), "SKILL.md is missing".into()),
        (json!({"files": many}), "the skill has more than 512 files".into()),
        (json!({"files": [{"path": "SKILL.md"}]}), "files[0] must have either text or blob".into()),
        (
            json!({"files": [{"path": "SKILL.md", "text": "", "blob": ""}]}),
            "files[0] must have either text or blob".into(),
        ),
        (
            json!({"files": [{"path": "SKILL.md", "blob": "%"}]}),
            "files[0].blob: not base64 at byte 0; expected the standard alphabet of RFC 4648".into(),
        ),
        (
            json!({"files": [{"path": "SKILL.md", "text": "", "mimeType": "x"}]}),
            "files[0].mimeType is not a MIME type".into(),
        ),
        (json!({"path": "t", "files": []}), "path differs from the one in the query".into()),
        (json!({"files": [{"path": "SKILL.md", "text": ""}]}), "SKILL.md must begin with a line ---".into()),
        (
            json!({"files": [{"path": "SKILL.md", "text": "---\nname: s\n"}]}),
            "SKILL.md has no line --- that closes the frontmatter".into(),
        ),
        (
            json!({"files": [{"path": "SKILL.md", "blob": "/w=="}]}),
            "SKILL.md is not text in UTF-8 without NUL".into(),
        ),
        (
            json!({"files": [{"path": "SKILL.md", "text": "---\nname: s\0\n---\n"}]}),
            "SKILL.md is not text in UTF-8 without NUL".into(),
        ),
        (file("/a"), "\"/a\" is absolute; expected a path relative to the folder of the skill".into()),
        (file("../a"), "\"../a\" has a segment . or ..".into()),
        (file("a/../b"), "\"a/../b\" has a segment . or ..".into()),
        (file("a/./b"), "\"a/./b\" has a segment . or ..".into()),
        (file("a//b"), "\"a//b\" has an empty segment".into()),
        (file("a/"), "\"a/\" has an empty segment".into()),
        (file(""), "\"\" is empty".into()),
        (file("a\\b"), "\"a\\\\b\" contains a backslash; separate segments by /".into()),
        (file("C:\\b"), "\"C:\\\\b\" contains a backslash; separate segments by /".into()),
        (file("a\nb"), "\"a\\nb\" contains a control character".into()),
        (file("a\0b"), "\"a\\0b\" contains a control character".into()),
        (file("SKILL.md"), "\"SKILL.md\" occurs twice".into()),
        (file("SKILL.md/a"), "\"SKILL.md\" is both a file and a directory".into()),
        (with("name: t\ndescription: d\n"), "frontmatter: name \"t\" differs from the folder \"s\"".into()),
        (with("description: d\n"), "SKILL.md frontmatter: name is missing".into()),
        (with("name: S\ndescription: d\n"), name.into()),
        (with("name: s-\ndescription: d\n"), name.into()),
        (with("name: 1\ndescription: d\n"), name.into()),
        (with("name: s\n"), "SKILL.md frontmatter: description is missing".into()),
        (with("name: s\ndescription: ''\n"), description.into()),
        (with("name: s\ndescription: 1\n"), description.into()),
        (with(&format!("name: s\ndescription: {}\n", "x".repeat(1_025))), description.into()),
        (extended("compatibility: ''\n"), compatibility.into()),
        (extended(&format!("compatibility: {}\n", "x".repeat(501))), compatibility.into()),
        (extended("metadata: [a]\n"), metadata.into()),
        (extended("metadata:\n  a: 1\n"), metadata.into()),
        (extended("x: &a 1\n"), unsupported(4, "anchors are")),
        (extended("x: *a\n"), unsupported(4, "aliases are")),
        (extended("x: !!str a\n"), unsupported(4, "tags are")),
        (extended("x: !a b\n"), unsupported(4, "tags are")),
        (extended("? x\n: y\n"), unsupported(4, "keys with ? are")),
        (extended("1: x\n"), "SKILL.md line 4: a key is not a string; quote it".into()),
        (extended("null: x\n"), "SKILL.md line 4: a key is not a string; quote it".into()),
        (extended("[a]: x\n"), "SKILL.md line 4: a key is not a string; quote it".into()),
        (extended("x: \"a\n  b\"\n"), unsupported(4, "quoted values of several lines are")),
        (extended("x: 'a\n  b'\n"), unsupported(4, "quoted values of several lines are")),
        (extended("x: [a,\n  b]\n"), unsupported(5, "flow collections of several lines are")),
        (extended("x: {a: 1,\n  b: 2}\n"), unsupported(5, "flow collections of several lines are")),
        (extended("x: |2\n    a\n"), unsupported(4, "indentation indicators are")),
        (extended("x: >+1\n  a\n"), unsupported(4, "indentation indicators are")),
        (
            extended(&format!("x: {}{}\n", "[".repeat(33), "]".repeat(33))),
            "SKILL.md line 4: nested more than 32 levels deep".into(),
        ),
        (extended("x: 1\nx: 2\n"), "SKILL.md line 5: duplicate key \"x\"".into()),
        (extended("x: {a: 1, a: 2}\n"), "SKILL.md line 4: duplicate key \"a\"".into()),
        (extended("x: .inf\n"), "SKILL.md line 4: \".inf\" is not a number of JSON; quote it".into()),
        (extended("x: -.Inf\n"), "SKILL.md line 4: \"-.Inf\" is not a number of JSON; quote it".into()),
        (extended("x: .nan\n"), "SKILL.md line 4: \".nan\" is not a number of JSON; quote it".into()),
        (extended("__proto__: 1\n"), unsupported(4, "the key __proto__ is")),
        (extended("x: {__proto__: 1}\n"), unsupported(4, "the key __proto__ is")),
        (extended("...\n"), unsupported(4, "markers of documents are")),
        (with("- name: s\n"), "SKILL.md line 2: the frontmatter must be a mapping of keys to values".into()),
    ];
    assert!(cases.len() >= 60);
    for (sent, detail) in cases {
        let answer = replica.admin("PUT", &skill("s"), Some(sent)).await;
        assert_eq!(normalized(&answer), problem(400, "invalid_params", &detail));
    }
    let collision = json!({"files": [
        {"path": "SKILL.md", "text": skill_md("s")}, {"path": "é", "text": ""}, {"path": "e\u{301}", "text": ""},
    ]});
    let answer = replica.admin("PUT", &skill("s"), Some(collision)).await;
    let detail = "\"e\\u{301}\" and \"é\" are the same path in Unicode normalization form C";
    assert_eq!(normalized(&answer), problem(400, "invalid_params", detail));
    let none = json!({"items": [], "nextCursor": null});
    assert_eq!(normalized(&replica.admin("GET", "/agents/a/skills", None).await), answered(200, None, &none));
}

#[tokio::test]
async fn bad_archives_are_refused() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__SKILL_FILES", 4)
        .set("WAGGLE_LIMITS__SKILL_BYTES", "64 KiB")
        .start()
        .await;
    replica.acme("a").await;
    let text = skill_md("s").into_bytes();
    let (regular, bomb) = (EntryType::Regular, vec![0; 1 << 24]);
    let mut encrypted = zip(&[("SKILL.md", &text)]);
    let central = encrypted.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    encrypted[central + 8] |= 1;
    let five: Vec<_> = ["1", "2", "3", "4", "5"].map(|name| (name, &b""[..])).to_vec();
    let zips: Vec<(Vec<u8>, &str)> = vec![
        (zip(&[]), "SKILL.md is missing"),
        (zip(&[("other/SKILL.md", &text)]), "SKILL.md is missing"),
        (zip(&[("SKILL.md", &text), ("bomb", &bomb)]), "the files of the skill have more than 65536 bytes"),
        (
            zip(&[("SKILL.md", &text), ("a", &vec![1; 65_536])]),
            "the files of the skill have more than 65536 bytes",
        ),
        (zip(&five), "the skill has more than 4 files"),
        (zip(&[("SKILL.md", &text), ("../a", b"")]), "\"../a\" has a segment . or .."),
        (
            zip(&[("SKILL.md", &text), ("/a", b"")]),
            "\"/a\" is absolute; expected a path relative to the folder of the skill",
        ),
        (
            zip(&[("SKILL.md", &text), ("a\\b", b"")]),
            "\"a\\\\b\" contains a backslash; separate segments by /",
        ),
        (
            zip(&[("SKILL.md", &text), ("é", b""), ("e\u{301}", b"")]),
            "\"e\\u{301}\" and \"é\" are the same path in Unicode normalization form C",
        ),
        (encrypted, "\"SKILL.md\" is encrypted"),
    ];
    for (archive, detail) in zips {
        let answer = send(&replica, ("PUT", &skill("s")), "application/zip", archive).await;
        assert_eq!(normalized(&answer), problem(400, "invalid_params", detail));
    }
    let tars: Vec<(Vec<u8>, &str)> = vec![
        (
            tar(&[("SKILL.md", regular, &text), ("bomb", regular, &bomb)]),
            "the files of the skill have more than 65536 bytes",
        ),
        (tar(&[("SKILL.md", regular, &text), ("../a", regular, b"")]), "\"../a\" has a segment . or .."),
        (
            tar(&[("SKILL.md", regular, &text), ("/etc/passwd", regular, b"")]),
            "\"/etc/passwd\" is absolute; expected a path relative to the folder of the skill",
        ),
        (
            tar(&[("SKILL.md", regular, &text), ("a", EntryType::Symlink, b"")]),
            "\"a\" is a link; expected files and directories",
        ),
        (
            tar(&[("SKILL.md", regular, &text), ("a", EntryType::Link, b"")]),
            "\"a\" is a link; expected files and directories",
        ),
        (
            tar(&[("SKILL.md", regular, &text), ("a", EntryType::Char, b"")]),
            "\"a\" is a device; expected files and directories",
        ),
        (
            tar(&[("SKILL.md", regular, &text), ("a", EntryType::Fifo, b"")]),
            "\"a\" is a device; expected files and directories",
        ),
        (tar(&[("SKILL.md", regular, &text), ("SKILL.md", regular, &text)]), "\"SKILL.md\" occurs twice"),
    ];
    for (archive, detail) in tars {
        let answer = send(&replica, ("PUT", &skill("s")), "application/gzip", archive).await;
        assert_eq!(normalized(&answer), problem(400, "invalid_params", detail));
    }
    for mime in ["application/zip", "application/gzip"] {
        let answer = send(&replica, ("PUT", &skill("s")), mime, b"junk".to_vec()).await;
        assert_eq!(answer.status, 400);
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with("the archive cannot be read: "), "{detail}");
    }
    let long = vec![0; (64 << 10) + (4 << 20) + 1];
    let answer = send(&replica, ("PUT", &skill("s")), "application/zip", long).await;
    assert_eq!(answer.status, 413);
    let most = body("s", &[("a", "1"), ("b", "2"), ("c", "3")]);
    assert_eq!(replica.admin("PUT", &skill("s"), Some(most)).await.status, 201, "as many as there may be");
}

#[tokio::test]
async fn largest_skill_is_stored_and_one_byte_more_is_refused() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let text = skill_md("s").into_bytes();
    let rest = (16 << 20) - text.len();
    let path = skill("s");
    let large = |bytes: usize| zip(&[("SKILL.md", &text), ("data.bin", &vec![0xff; bytes])]);
    let refused = send(&replica, ("PUT", &path), "application/zip", large(rest + 1)).await;
    let detail = "the files of the skill have more than 16777216 bytes";
    assert_eq!(normalized(&refused), problem(400, "invalid_params", detail));
    assert_eq!(send(&replica, ("PUT", &path), "application/zip", large(rest)).await.status, 201);
}
