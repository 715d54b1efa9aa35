//! `waggle apply` and `waggle export` against a running gateway.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support::app::{Replica, gateway, mistyped};

pub(crate) type Output = (Option<i32>, String, String);

/// Runs the binary with this standard input.
pub(crate) async fn waggle(replica: &Replica, key: &str, arguments: &[&str], stdin: &str) -> Output {
    let url = format!("http://{}/", replica.running.admin_address);
    run(&[("WAGGLE_URL", &url), ("WAGGLE_KEY", key)], arguments, stdin).await
}

pub(crate) async fn run(variables: &[(&str, &str)], arguments: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_waggle"))
        .env_clear()
        .envs(variables.iter().copied())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // A command that does not read its input has exited.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes()).await;
    let output = child.wait_with_output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

pub(crate) fn output(code: i32, out: &str, err: &str) -> Output {
    (Some(code), out.to_owned(), err.to_owned())
}

const MANIFEST: &str = r#"{
  "apiVersion": "waggle/v1",
  "agent": "a",
  "resources": [
    {
      "uri": "x:1",
      "name": "n",
      "_meta": { "big":12345678901234567890123 },
      "contents": [{"text":"t"}]
    }
  ],
  "templates": [
    {
      "uriTemplate": "y:{a}",
      "name": "n",
      "template": "{{ a }}"
    }
  ],
  "prompts": [
    {
      "name": "p",
      "messages": [{"role":"user","content":{"type":"text","text":"two\nlines"}}]
    }
  ],
  "skills": [],
  "mounts": []
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn exported_manifest_equals_the_applied_one() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a.json");
    fs::write(&file, MANIFEST).unwrap();
    let file = file.to_str().unwrap();
    let all = "create resource x:1\ncreate template y:{a}\ncreate prompt p\n";
    let planned =
        format!("{all}a is still at revision 1: would be 3 created, 0 updated, 0 deleted, 0 unchanged\n");
    let dry = waggle(&replica, &key, &["apply", "-f", file, "--dry-run"], "").await;
    assert_eq!(dry, output(0, &planned, ""));
    let done = format!("{all}a is at revision 2: 3 created, 0 updated, 0 deleted, 0 unchanged\n");
    assert_eq!(waggle(&replica, &key, &["apply", "--file", file], "").await, output(0, &done, ""));
    let exported = waggle(&replica, &key, &["export", "a"], "").await;
    assert_eq!(exported, output(0, MANIFEST, ""));
    let same = "a is at revision 2: 0 created, 0 updated, 0 deleted, 3 unchanged\n";
    assert_eq!(waggle(&replica, &key, &["apply", "-f", "-"], MANIFEST).await, output(0, same, ""));

    let many: Vec<_> =
        (10..35).map(|n| json!({"uri": format!("x:{n}"), "name": "n", "contents": []})).collect();
    let many = json!({"apiVersion": "waggle/v1", "agent": "a", "resources": many}).to_string();
    let (code, out, err) = waggle(&replica, &replica.operator, &["apply", "-f", "-"], &many).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[..2], ["create resource x:10", "create resource x:11"]);
    let rest = [
        "create resource x:29",
        "create 5 more",
        "delete resource x:1",
        "delete template y:{a}",
        "delete prompt p",
        "a is at revision 3: 25 created, 0 updated, 3 deleted, 0 unchanged",
    ];
    assert_eq!(lines[19..], rest);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_manifest_is_named_by_its_file() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    replica.agent("acme", "b").await;
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let manifest = |version: &str, agent: &str| format!(r#"{{"apiVersion":"{version}","agent":"{agent}"}}"#);
    fs::create_dir(path("all")).unwrap();
    fs::write(path("all/1.json"), manifest("waggle/v2", "a")).unwrap();
    fs::write(path("all/2.json"), manifest("waggle/v1", "b")).unwrap();
    fs::write(path("none.json"), "{}").unwrap();
    fs::write(path("broken.yaml"), "agent: [").unwrap();
    let all = path("all");
    let refused = format!("{all}/1.json: apiVersion must be waggle/v1 (invalid_params)\n");
    for arguments in [&["apply", "-f", &all, "--dry-run"][..], &["diff", "-f", &all]] {
        let found = waggle(&replica, &replica.operator, arguments, "").await;
        assert_eq!(found, output(1, "", &refused), "{arguments:?}");
    }
    // What cannot be read is named also where it is the only document.
    let none = path("none.json");
    let refused = format!("{none}: agent is missing; expected the id of the agent\n");
    assert_eq!(
        waggle(&replica, &replica.operator, &["apply", "-f", &none], "").await,
        output(2, "", &refused)
    );
    let broken = path("broken.yaml");
    let (code, out, error) = waggle(&replica, &replica.operator, &["apply", "-f", &broken], "").await;
    assert!(code == Some(2) && out.is_empty() && error.starts_with(&format!("{broken}: ")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_key_is_reported_with_the_gateway() {
    let (_database, replica) = gateway().await;
    let key = mistyped(&replica.acme("a").await);
    let address = replica.running.admin_address;
    let refused = format!("http://{address}: a valid credential is required (unauthenticated)\n");
    // Calls, and streams, which read their answers otherwise.
    for arguments in [&["export", "a"][..], &["apply", "-f", "-"], &["audit", "export"]] {
        let found = waggle(&replica, &key, arguments, r#"{"apiVersion":"waggle/v1","agent":"a"}"#).await;
        assert_eq!(found, output(1, "", &refused), "{arguments:?}");
    }
    // Other refusals are those of the gateway that is meant.
    let found = waggle(&replica, &replica.operator, &["export", "b"], "").await;
    assert_eq!(found, output(1, "", "no such agent (not_found)\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_printed_on_one_line() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let (_, without) = replica.key("a", &["mcp"]).await;
    let apply = ["apply", "-f", "-"];
    let of = |agent: &str| format!(r#"{{"apiVersion":"waggle/v1","agent":{agent}}}"#);
    let good = of(r#""a""#);
    for (key, manifest, expected) in [
        (&without, good.as_str(), "this credential lacks the scope registry (insufficient_scope)\n"),
        (&key, &of(r#""other""#), "no such agent (not_found)\n"),
        (&key, &good.replace("v1", "v2"), "apiVersion must be waggle/v1 (invalid_params)\n"),
        (&key, "{}", "-: agent is missing; expected the id of the agent\n"),
        (&key, "{", "-: EOF while parsing an object at line 1 column 1\n"),
        (&key, &of(r#""../../b""#), "-: agent must match ^[a-z0-9][a-z0-9_-]{0,62}$\n"),
    ] {
        // The gateway refuses the first three, the command line the others.
        let code = if expected.starts_with("-: ") { 2 } else { 1 };
        assert_eq!(waggle(&replica, key, &apply, manifest).await, output(code, "", expected), "{manifest}");
    }
    let nowhere = waggle(&replica, &key, &["apply", "-f", "/nowhere"], "").await;
    let expected = "cannot read /nowhere: No such file or directory (os error 2)\n";
    assert_eq!(nowhere, output(2, "", expected));
    let stranger = waggle(&replica, &key, &["export", "b"], "").await;
    assert_eq!(stranger, output(1, "", "no such agent (not_found)\n"));
    let (code, _, err) = waggle(&replica, &key, &["export", "A/b"], "").await;
    assert!(code == Some(2) && err.contains("must match"), "{err}");

    let no_key = run(&[], &["export", "a"], "").await;
    assert_eq!(no_key, output(2, "", "WAGGLE_KEY is not set; expected the key to send to the gateway\n"));
    let variables = [("WAGGLE_KEY", "k"), ("WAGGLE_URL", "nonsense")];
    let expected = "WAGGLE_URL is not a URL such as https://mcp.example.com\n";
    assert_eq!(run(&variables, &["export", "a"], "").await, output(2, "", expected));
    let variables = [("WAGGLE_KEY", "two words")];
    assert_eq!(run(&variables, &["export", "a"], "").await, output(2, "", "WAGGLE_KEY: not a key\n"));
    let variables = [("WAGGLE_KEY", "k"), ("WAGGLE_ADMIN__LISTEN", "127.0.0.1:1")];
    let expected = "http://127.0.0.1:1: Connection refused (os error 111)\n";
    assert_eq!(run(&variables, &["export", "a"], "").await, output(1, "", expected));
    let agent: Value = replica.admin("GET", "/agents/a", None).await.json();
    assert_eq!(agent["id"], "a");
    assert_eq!(replica.admin("GET", "/agents/a", None).await.revision(), 1, "nothing was done");
}
