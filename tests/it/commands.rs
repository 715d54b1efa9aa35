//! Every command of the administration client: its output and its exit code.

mod cases;
mod every;

use std::fs;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::cases::{ACCOUNTS, DEFINITIONS, DELETED_DEFINITIONS};
use crate::apply::{Output, output, waggle};
use crate::support::app::{Replica, gateway};

/// Runs a command line of words, where `'…'` is one word; columns of the output are separated by one space, and times and
/// the ids and display forms of keys are masked.
async fn run(replica: &Replica, line: &str, stdin: &str) -> (Option<i32>, String, String) {
    masked(waggle(replica, &replica.operator, &words(line), stdin).await)
}

// Compiled once: unoptimised, that takes longer than a command.
static WORDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"'([^']*)'|(\S+)").unwrap());

static MASKS: LazyLock<[(Regex, &str); 6]> = LazyLock::new(|| {
    [
        (r"\b(now|\d+ s ago)\b", "AGE"),
        (r"\b\d{4}-\d\d-\d\dT[0-9:.]+Z\b", "TIME"),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
        (r"\b(bak|oag)_\w{49}\b", "${1}_SECRET"),
        (r"\b(bak|oag)_\w{8}\b", "${1}_DISPLAY"),
        (r"(?m)[ ]{2,}", " "),
    ]
    .map(|(mask, with)| (Regex::new(mask).unwrap(), with))
});

fn words(line: &str) -> Vec<&str> {
    WORDS.captures_iter(line).map(|word| word.get(1).or(word.get(2)).unwrap().as_str()).collect()
}

fn masked((code, out, error): Output) -> Output {
    let masked = MASKS.iter().fold(out, |out, (mask, with)| mask.replace_all(&out, *with).into_owned());
    (code, masked, error)
}

async fn check(replica: &Replica, table: &[(&str, &str, i32, &str, &str)]) {
    for (line, stdin, code, out, error) in table {
        assert_eq!(run(replica, line, stdin).await, output(*code, out, error), "waggle {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_and_agents_are_created_listed_changed_and_deleted() {
    let (_database, replica) = gateway().await;
    check(&replica, ACCOUNTS).await;
    let agent = replica.admin("GET", "/agents/research", None).await.json();
    assert_eq!(
        json!([agent["name"], agent["title"], agent["access"], agent["enabled"]]),
        json!(["Research", "The title", "key", true])
    );
    for line in [
        "tenant",
        "tenant create",
        "agent create a",
        "agent get",
        "key list",
        "key update x",
        "prompt render",
    ] {
        let (code, ..) = run(&replica, line, "").await;
        assert_eq!(code, Some(2), "waggle {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_created_listed_rotated_and_revoked() {
    let (_database, replica) = gateway().await;
    replica.tenant("acme").await;
    replica.agent("acme", "a").await;
    check(&replica, &[
        ("key create --agent a --name ci --scope mcp --label eu --network 127.0.0.0/8", "", 0, "bak_SECRET\n", ""),
        ("key create --tenant acme --name owner --per-second 20 --burst 60", "", 0, "oag_SECRET\n", ""),
        ("key create --tenant acme --name dated --expires-at 2999-01-31", "", 0, "oag_SECRET\n", ""),
        (
            "key list --agent a",
            "",
            0,
            "ID KEY NAME SCOPES LABELS CREATED EXPIRES REVOKED LAST USED\nUUID bak_DISPLAY ci mcp eu AGE\n",
            "",
        ),
    ])
    .await;
    let owner = replica.admin("GET", "/tenants/acme/keys", None).await.json();
    assert_eq!(owner["items"][0]["limits"], json!({"perSecond": 20, "burst": 60}));
    assert_eq!(owner["items"][1]["expiresAt"], "2999-01-31T00:00:00Z");
    let keys = replica.admin("GET", "/agents/a/keys", None).await.json();
    let id = keys["items"][0]["id"].as_str().unwrap().to_owned();
    let lines = [
        (format!("key get {id} --agent a -o name"), "UUID\n"),
        (format!("key update {id} --label us --label eu"), "updated key UUID\n"),
        (format!("agent explain a --key {id} --method resources/list -o name"), "allowed\n"),
        (format!("key rotate {id} --grace-seconds 60"), "bak_SECRET\n"),
        (format!("key revoke {id}"), "revoked key UUID\n"),
    ];
    for (line, out) in lines {
        assert_eq!(run(&replica, &line, "").await, output(0, out, ""), "waggle {line}");
    }
    let keys = replica.admin("GET", "/agents/a/keys", None).await.json();
    let shown: Vec<_> = keys["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| (&key["labels"], !key["revokedAt"].is_null()))
        .collect();
    assert_eq!(shown, [(&json!(["eu", "us"]), true), (&json!(["eu", "us"]), false)]);
    let unknown = format!("key get {} --agent a", uuid::Uuid::nil());
    let refused = "unknown key 00000000-0000-0000-0000-000000000000 (not_found)\n";
    assert_eq!(run(&replica, &unknown, "").await, output(1, "", refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_created_listed_changed_and_deleted() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    check(&replica, DEFINITIONS).await;
    let read = replica.admin("GET", "/agents/a/resources?uri=x%3Aguide", None).await.json();
    assert_eq!(
        json!([read["name"], read["title"], read["labels"], read["contents"]]),
        json!(["Guide", "A guide", ["eu"], [{"text": "one\ntwo\n"}]])
    );
    let rendered =
        waggle(&replica, &key, &["prompt", "render", "--agent", "a", "ask", "topic=bees"], "").await;
    assert_eq!(rendered, output(0, "user: About bees.\n", ""));
    let (code, out, error) = waggle(&replica, &key, &["prompt", "render", "--agent", "a", "ask"], "").await;
    assert!(code == Some(1) && out.is_empty() && error.contains("topic"), "{error}");
    check(&replica, DELETED_DEFINITIONS).await;
}

const MANIFEST: &str = r#"apiVersion: waggle/v1
agent: a
resources:
- uri: x:1
  name: one
  contents:
  - text: |
      first
      second
- uri: x:2
  name: two
  contents: [{text: t}]
templates: []
prompts: []
"#;

#[tokio::test(flavor = "multi_thread")]
async fn manifests_in_yaml_are_compared_and_applied() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let created = "+ resource x:1\n+ resource x:2\na: 2 to create, 0 to update, 0 to delete\n";
    let none = "a: 0 to create, 0 to update, 0 to delete\n";
    let applied = "create resource x:1\ncreate resource x:2\na is at revision 2: 2 created, 0 updated, 0 deleted, 0 unchanged\n";
    let changed = MANIFEST.replace("second", "other").replace("x:2", "x:3");
    let difference = "+ resource x:3\n~ resource x:1\n @@ -1,6 +1,6 @@\n contents:\n - text: |\n first\n - second\n + other\n name: one\n uri: x:1\n- resource x:2\na: 1 to create, 1 to update, 1 to delete\n";
    check(
        &replica,
        &[
            ("diff -f -", MANIFEST, 2, created, ""),
            ("apply -f -", MANIFEST, 0, applied, ""),
            ("diff -f -", MANIFEST, 0, none, ""),
            ("diff -f -", &changed, 2, difference, ""),
            ("diff -f -", "agent: b\n", 1, "", "no such agent (not_found)\n"),
        ],
    )
    .await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("exported.json");
    let (_, exported, _) = waggle(&replica, &replica.operator, &["export", "a"], "").await;
    fs::write(&file, &exported).unwrap();
    let same = waggle(&replica, &replica.operator, &["diff", "-f", file.to_str().unwrap()], "").await;
    assert_eq!(same, output(0, none, ""));
    let value: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(value["resources"][0]["contents"][0]["text"], "first\nsecond\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_name_every_command() {
    let (_database, replica) = gateway().await;
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, error) = run(&replica, &format!("completions {shell}"), "").await;
        assert_eq!((code, error.as_str()), (Some(0), ""));
        for noun in [
            "tenant", "agent", "key", "resource", "template", "prompt", "skill", "diff", "import", "context",
            "backup", "restore", "errors",
        ] {
            assert!(script.contains(noun), "{shell}: {noun}");
        }
    }
}

#[tokio::test]
async fn manual_pages_are_written_for_every_command() {
    let folder = TempDir::new().unwrap();
    let pages = folder.path().join("man");
    let written = crate::apply::run(&[], &["man", pages.to_str().unwrap()], "").await;
    assert_eq!(written, output(0, "", ""));
    for (page, expected) in [
        ("waggle.1", "A multi\\-tenant MCP gateway"),
        ("waggle-serve.1", "\\-\\-check"),
        ("waggle-tenant-create.1", "\\-\\-max\\-key\\-age\\-days"),
        ("waggle-context-add.1", "\\-\\-key\\-from"),
    ] {
        let text = fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(expected), "{page}: {text}");
    }
}
