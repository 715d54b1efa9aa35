//! What the tests of both kinds of databases share.

mod attacks;
mod postgres;
mod sqlite;
mod support;

use serde_json::json;

use super::*;

#[test]
fn settings_that_are_refused_name_their_member() {
    let folder = tempfile::tempdir().unwrap();
    let context = support::context(folder.path(), None);
    let file = |name: &str| format!("sqlite:{}/{name}", folder.path().display());
    let channel = "ü".repeat(32);
    let cases = [
        (json!({}), json!({}), "settings is invalid: missing field `url`"),
        (
            json!({"url": "postgres://u:p@db/x"}),
            json!({}),
            "settings.url must not have a password: it belongs into `secrets`",
        ),
        (
            json!({"url": "postgres://u@db/x", "statements": {"a": "select {"}}),
            json!({}),
            "settings.statements.a has a `{` that begins no `{name}`",
        ),
        (
            json!({"url": "postgres://u@db/x", "notifyChannel": channel}),
            json!({}),
            "settings.notifyChannel must have 1 to 63 bytes and no NUL",
        ),
        (
            json!({"url": "postgres://u@db/x", "ca": "x"}),
            json!({}),
            "settings.ca must have certificates in PEM",
        ),
        (
            json!({"url": "postgres://u@db/x"}),
            json!({"password": 1}),
            "secrets must be an object with `password`, a text",
        ),
        (
            json!({"url": file("a.db"), "notifyChannel": "a"}),
            json!({}),
            "settings.notifyChannel is not for SQLite",
        ),
        (json!({"url": file("a.db")}), json!({"password": "a"}), "secrets.password is not for SQLite"),
        (
            json!({"url": "sqlite:/etc/a.db"}),
            json!({}),
            "settings.url must be a file below one of `sources.file_roots`",
        ),
        (
            json!({"url": file("../a.db")}),
            json!({}),
            "settings.url must be a file below one of `sources.file_roots`",
        ),
        (
            json!({"url": "/proc/self/environ"}),
            json!({}),
            "settings.url must be a file below one of `sources.file_roots`",
        ),
    ];
    for (settings, secrets, expected) in cases {
        let refused = Sql::new(&settings, secrets.as_object().unwrap(), &context).unwrap_err();
        assert_eq!(refused.to_string(), expected, "{settings}");
    }
}
