//! Names of skills and files.

use super::{SKILL, refusal};
use crate::{FilePath, SkillPath, mime_type};

#[test]
fn files_of_a_skill_are_validated() {
    let other = "---\nname: other\ndescription: d\n---\n";
    let large = "x".repeat(4_097);
    let deep = "d/".repeat(127) + "a";
    for (files, error) in [
        (&[][..], "SKILL.md is missing"),
        (&[("skill.md", SKILL)], "SKILL.md is missing"),
        (&[("a/SKILL.md", SKILL)], "SKILL.md is missing"),
        (&[("SKILL.md", "")], "SKILL.md must begin with a line ---"),
        (&[("SKILL.md", other)], "frontmatter: name \"other\" differs from the folder \"refunds\""),
        (&[("SKILL.md", SKILL), ("SKILL.md", SKILL)], "\"SKILL.md\" occurs twice"),
        (
            &[("SKILL.md", SKILL), ("/etc/passwd", "")],
            "\"/etc/passwd\" is absolute; expected a path relative to the folder of the skill",
        ),
        (
            &[("SKILL.md", SKILL), ("C:x", "")],
            "\"C:x\" is absolute; expected a path relative to the folder of the skill",
        ),
        (&[("SKILL.md", SKILL), ("../x", "")], "\"../x\" has a segment . or .."),
        (&[("SKILL.md", SKILL), ("a/../x", "")], "\"a/../x\" has a segment . or .."),
        (&[("SKILL.md", SKILL), ("a/./x", "")], "\"a/./x\" has a segment . or .."),
        (&[("SKILL.md", SKILL), ("a//x", "")], "\"a//x\" has an empty segment"),
        (&[("SKILL.md", SKILL), ("a/", "")], "\"a/\" has an empty segment"),
        (&[("SKILL.md", SKILL), ("", "")], "\"\" is empty"),
        (&[("SKILL.md", SKILL), ("a\\b", "")], "\"a\\\\b\" contains a backslash; separate segments by /"),
        (&[("SKILL.md", SKILL), ("a\0b", "")], "\"a\\0b\" contains a control character"),
        (&[("SKILL.md", SKILL), ("a\u{202e}b", "")], "\"a\\u{202e}b\" contains a control character"),
        (
            &[("SKILL.md", SKILL), ("é", ""), ("e\u{301}", "")],
            "\"e\\u{301}\" and \"é\" are the same path in Unicode normalization form C",
        ),
        (
            &[("SKILL.md", SKILL), ("é/a", ""), ("e\u{301}/b", "")],
            "\"e\\u{301}\" and \"é\" are the same path in Unicode normalization form C",
        ),
        (&[("SKILL.md", SKILL), ("a", ""), ("a/b", "")], "\"a\" is both a file and a directory"),
        (&[("SKILL.md", SKILL), ("SKILL.md/b", "")], "\"SKILL.md\" is both a file and a directory"),
        (&[("SKILL.md", SKILL), ("a", &large)], "the files of the skill have more than 4096 bytes"),
        (&[("SKILL.md", SKILL), (&deep, "")], ""),
        (
            &[
                ("1", ""),
                ("2", ""),
                ("3", ""),
                ("4", ""),
                ("5", ""),
                ("6", ""),
                ("7", ""),
                ("8", ""),
                ("9", ""),
            ],
            "the skill has more than 8 files",
        ),
    ] {
        assert_eq!(refusal(files), error, "{files:?}");
    }
    let refused = refusal(&[("SKILL.md", SKILL), (&(deep + "c"), "")]);
    assert!(refused.ends_with(" is longer than 255 bytes"), "{refused}");
}

#[test]
fn paths_of_skills_are_validated() {
    for (path, uri) in [
        ("refunds", "skill://refunds/"),
        ("acme/refunds", "skill://acme/refunds/"),
        ("acme.example/Über uns/a-1", "skill://acme.example/%C3%9Cber%20uns/a-1/"),
    ] {
        assert_eq!(SkillPath::parse(path).map(|path| path.root_uri()), Ok(uri.to_owned()));
    }
    for (path, error) in [
        ("", "is empty"),
        ("/a", "is absolute; expected a path relative to the folder of the skill"),
        ("a/", "has an empty segment"),
        ("a/..", "has a segment . or .."),
        ("Acme/a", "has a first segment with other characters than a-z, 0-9, -, . and _"),
        ("ä/a", "has a first segment with other characters than a-z, 0-9, -, . and _"),
        ("a:1/a", "is absolute; expected a path relative to the folder of the skill"),
        ("ab:1/a", "has a first segment with other characters than a-z, 0-9, -, . and _"),
        (
            "a/B",
            "does not end in the name of a skill: 1 to 64 of a-z and 0-9, with single hyphens between them",
        ),
        (
            "a/-b",
            "does not end in the name of a skill: 1 to 64 of a-z and 0-9, with single hyphens between them",
        ),
        (
            "a/b--c",
            "does not end in the name of a skill: 1 to 64 of a-z and 0-9, with single hyphens between them",
        ),
        (
            &"a".repeat(65),
            "does not end in the name of a skill: 1 to 64 of a-z and 0-9, with single hyphens between them",
        ),
        (&"a".repeat(256), "is longer than 255 bytes"),
    ] {
        assert_eq!(
            SkillPath::parse(path).map_err(|error| error.to_string()),
            Err(error.to_owned()),
            "{path}"
        );
    }
}

#[test]
fn names_of_files_are_percent_encoded_in_uris() {
    let path = FilePath::parse("参考/Q&A 1%#?.md").unwrap();
    assert_eq!(path.uri_path(), "%E5%8F%82%E8%80%83/Q&A%201%25%23%3F.md");
}

#[test]
fn types_are_told_by_names() {
    for (path, is_text, mime) in [
        ("a/b.MD", true, "text/markdown"),
        ("scripts/run.py", true, "text/x-python"),
        ("a.png", false, "image/png"),
        ("LICENSE", true, "text/plain"),
        ("data", false, "application/octet-stream"),
        ("a.d/data", false, "application/octet-stream"),
    ] {
        assert_eq!(mime_type(path, is_text), mime, "{path}");
    }
}
