//! Every command of the administration client: its output and its exit code.

use std::fs;

use regex::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::apply::{output, waggle};
use crate::support::app::{Replica, gateway};

/// Runs a command line of words, where `'…'` is one word; columns of the output are separated by one space, and times and
/// the ids and display forms of keys are masked.
async fn run(replica: &Replica, line: &str, stdin: &str) -> (Option<i32>, String, String) {
    let words = Regex::new(r"'([^']*)'|(\S+)").unwrap();
    let words: Vec<_> =
        words.captures_iter(line).map(|word| word.get(1).or(word.get(2)).unwrap().as_str()).collect();
    let (code, out, error) = waggle(replica, &replica.operator, &words, stdin).await;
    let masks = [
        (r"\b(now|\d+ s ago)\b", "AGE"),
        (r"\b\d{4}-\d\d-\d\dT[0-9:.]+Z\b", "TIME"),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
        (r"\b(bak|oag)_\w{49}\b", "${1}_SECRET"),
        (r"\b(bak|oag)_\w{8}\b", "${1}_DISPLAY"),
        (r"(?m)[ ]{2,}", " "),
    ];
    let masked = masks
        .iter()
        .fold(out, |out, (mask, with)| Regex::new(mask).unwrap().replace_all(&out, *with).into_owned());
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
    check(&replica, &[
        ("tenant list", "", 0, "ID NAME CREATED\n", ""),
        ("tenant create acme --name Acme", "", 0, "created tenant acme\n", ""),
        ("tenant create acme", "", 1, "", "a tenant with this id exists already (already_exists)\n"),
        ("tenant create beta -o name", "", 0, "beta\n", ""),
        ("tenant create gamma -q", "", 0, "", ""),
        ("tenant list", "", 0, "ID NAME CREATED\nacme Acme AGE\nbeta beta AGE\ngamma gamma AGE\n", ""),
        ("tenant list -o name", "", 0, "acme\nbeta\ngamma\n", ""),
        ("tenant get acme -o yaml", "", 0, "id: acme\nname: Acme\nmaxKeyAgeDays: null\ncreatedAt: \"TIME\"\n", ""),
        ("tenant update acme --name 'Acme Inc' --max-key-age-days 90", "", 0, "updated tenant acme\n", ""),
        (
            "tenant get acme -o json",
            "",
            0,
            "{\n \"id\": \"acme\",\n \"name\": \"Acme Inc\",\n \"maxKeyAgeDays\": 90,\n \"createdAt\": \"TIME\"\n}\n",
            "",
        ),
        ("tenant update acme -f -", "{\"nam\": 1}", 1, "", "unknown field `nam`, expected one of `name`, `maxKeyAgeDays`, `limits`, `agentLimits` at line 1 column 6 (invalid_params)\n"),
        ("tenant delete beta", "", 0, "deleted tenant beta\n", ""),
        ("tenant get beta", "", 1, "", "no such tenant (not_found)\n"),
        ("agent create research --tenant acme --name Research --access public", "", 0, "created agent research\n", ""),
        ("agent create notes --tenant gamma -f -", "name: Notes\ntools:\n- search\n", 0, "created agent notes\n", ""),
        (
            "agent list --tenant acme",
            "",
            0,
            "ID TENANT NAME ACCESS ENABLED CREATED\nresearch acme Research public true AGE\n",
            "",
        ),
        ("agent list -o name", "", 0, "notes\nresearch\n", ""),
        ("agent disable research", "", 0, "disabled agent research\n", ""),
        (
            "agent get research",
            "",
            0,
            "ID TENANT NAME ACCESS ENABLED CREATED\nresearch acme Research public false AGE\n",
            "",
        ),
        ("agent enable research", "", 0, "enabled agent research\n", ""),
        ("agent update research --title 'The title' --access key", "", 0, "updated agent research\n", ""),
        ("agent usage research", "", 0, "AT METHOD CALLS ERRORS DENIED BYTES\n", ""),
        ("agent delete notes", "", 0, "deleted agent notes\n", ""),
    ])
    .await;
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
        ("key create --tenant acme --name owner", "", 0, "oag_SECRET\n", ""),
        (
            "key list --agent a",
            "",
            0,
            "ID KEY NAME SCOPES LABELS CREATED EXPIRES REVOKED LAST USED\nUUID bak_DISPLAY ci mcp eu AGE\n",
            "",
        ),
    ])
    .await;
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

const PROMPT: &str = "arguments:\n- name: topic\n  required: true\nmessages:\n- role: user\n  content:\n    type: text\n    text: \"About {{ topic }}.\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_created_listed_changed_and_deleted() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let resource = "name: Guide\nmimeType: text/plain\ncontents:\n- text: |\n    one\n    two\n";
    check(
        &replica,
        &[
            ("resource create --agent a x:guide -f -", resource, 0, "created resource x:guide\n", ""),
            (
                "resource create --agent a x:guide -f -",
                resource,
                1,
                "",
                "precondition failed: the current revision is 2 (revision_mismatch)\n",
            ),
            (
                "resource list --agent a",
                "",
                0,
                "URI NAME MIME TYPE BYTES LABELS\nx:guide Guide text/plain 8\n",
                "",
            ),
            (
                "resource update --agent a x:guide --title 'A guide' --label eu",
                "",
                0,
                "updated resource x:guide\n",
                "",
            ),
            ("resource cat --agent a x:guide", "", 0, "one\ntwo\n", ""),
            ("resource touch --agent a x:guide", "", 0, "touched resource x:guide\n", ""),
            (
                "template create --agent a y:{city} --name City --template -",
                "Weather of {{ city }}",
                0,
                "created template y:{city}\n",
                "",
            ),
            ("template list --agent a -o name", "", 0, "y:{city}\n", ""),
            ("template update --agent a y:{city} --name Town", "", 0, "updated template y:{city}\n", ""),
            (
                "template get --agent a y:{city}",
                "",
                0,
                "URI TEMPLATE NAME MIME TYPE LABELS\ny:{city} Town\n",
                "",
            ),
            ("prompt create --agent a ask -f - --title Ask", PROMPT, 0, "created prompt ask\n", ""),
            ("prompt list --agent a", "", 0, "NAME TITLE DESCRIPTION LABELS\nask Ask\n", ""),
            (
                "prompt update --agent a ask --description 'Asks about a topic'",
                "",
                0,
                "updated prompt ask\n",
                "",
            ),
        ],
    )
    .await;
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
    check(
        &replica,
        &[
            ("resource delete --agent a x:guide", "", 0, "deleted resource x:guide\n", ""),
            ("template delete --agent a y:{city}", "", 0, "deleted template y:{city}\n", ""),
            ("prompt delete --agent a ask", "", 0, "deleted prompt ask\n", ""),
            ("prompt get --agent a ask", "", 1, "", "no such prompt (not_found)\n"),
        ],
    )
    .await;
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
