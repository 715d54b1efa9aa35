//! `waggle key create` and `waggle resource put`.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use crate::apply::{output, waggle};
use crate::support::app::{gateway, resource};

#[tokio::test(flavor = "multi_thread")]
async fn created_key_is_printed_and_has_its_scopes_and_labels() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let create = async |key: &str, more: &[&str]| {
        let arguments = [&["key", "create", "--agent", "a", "--name", "ci"], more].concat();
        waggle(&replica, key, &arguments, "").await
    };
    let labels = ["--label", "eu", "--label", "support", "--scope", "mcp", "--scope", "audit"];
    let (code, printed, error) = create(&replica.operator, &labels).await;
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let secret = printed.strip_suffix('\n').unwrap();
    let keys = replica.admin("GET", "/agents/a/keys", None).await.json();
    let made = &keys["items"][1];
    assert_eq!(made["display"], secret[..12]);
    assert_eq!(
        json!([made["name"], made["scopes"], made["labels"]]),
        json!(["ci", ["mcp", "audit"], ["eu", "support"]])
    );
    let (code, ..) = create(&replica.operator, &[]).await;
    assert_eq!(code, Some(0));
    let keys = replica.admin("GET", "/agents/a/keys", None).await.json();
    assert_eq!((&keys["items"][2]["scopes"], &keys["items"][2]["labels"]), (&json!(["mcp"]), &json!([])));

    let refused = "labels[0]: a label must match ^[a-z0-9][a-z0-9_.:-]{0,62}$, found `EU` (invalid_params)\n";
    assert_eq!(create(&replica.operator, &["--label", "EU"]).await, output(1, "", refused));
    let refused = "this call requires an owner key or the operator key (forbidden)\n";
    assert_eq!(create(&key, &[]).await, output(1, "", refused));
    let (code, _, error) = waggle(&replica, &key, &["key", "create", "--agent", "a"], "").await;
    assert!(code == Some(2) && error.contains("--name"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_put_again_keeps_what_is_not_given() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("today.md");
    fs::write(&file, "# Today\n").unwrap();
    let file = file.to_str().unwrap();
    let put = async |more: &[&str], stdin: &str| {
        waggle(
            &replica,
            &key,
            &[&["resource", "put", "--agent", "a", "notes:///today.md"], more].concat(),
            stdin,
        )
        .await
    };
    let read = async || replica.admin("GET", &resource("a", "notes:///today.md"), None).await.json();
    let done = |revision: i64| output(0, &format!("notes:///today.md is at revision {revision}\n"), "");

    assert_eq!(put(&[file, "--label", "staff", "--mime-type", "text/markdown"], "").await, done(2));
    let mut expected = json!({
        "uri": "notes:///today.md", "name": "today.md", "mimeType": "text/markdown", "labels": ["staff"],
        "contents": [{"text": "# Today\n"}],
    });
    assert_eq!(read().await, expected);
    // Other members are kept as they were sent.
    let meta = r#"{ "big":12345678901234567890123 }"#;
    let body = format!(
        r##"{{"name":"n","title":"t","mimeType":"text/markdown","labels":["staff"],"_meta":{meta},"contents":[]}}"##
    );
    let headers = [("authorization", &*format!("Bearer {key}")), ("content-type", "application/json")];
    let path = format!("/admin/v1{}", resource("a", "notes:///today.md"));
    assert_eq!(replica.http.send("PUT", &path, &headers, body).await.status, 200);
    assert_eq!(put(&["-"], "later").await, done(4));
    let text = replica.admin("GET", &resource("a", "notes:///today.md"), None).await.text();
    assert!(text.contains(meta), "{text}");
    (expected["name"], expected["title"], expected["contents"]) =
        (json!("n"), json!("t"), json!([{"text": "later"}]));
    expected["_meta"] = serde_json::from_str(meta).unwrap();
    assert_eq!(read().await, expected);
    assert_eq!(put(&["-"], "later").await, done(4), "nothing changed");

    let given = ["-", "--name", "m", "--mime-type", "image/png", "--label", "a", "--label", "b"];
    assert_eq!(put(&given, "bytes").await, done(5));
    (expected["name"], expected["mimeType"], expected["labels"]) =
        (json!("m"), json!("image/png"), json!(["a", "b"]));
    expected["contents"] = json!([{"blob": "Ynl0ZXM="}]);
    assert_eq!(read().await, expected);

    let nowhere = ["resource", "put", "--agent", "b", "x:1", "-"];
    assert_eq!(
        waggle(&replica, &replica.operator, &nowhere, "").await,
        output(1, "", "no such agent (not_found)\n")
    );
    let (code, _, error) = put(&["/nowhere"], "").await;
    assert_eq!(
        (code, error.as_str()),
        (Some(2), "cannot read /nowhere: No such file or directory (os error 2)\n")
    );
    assert_eq!(replica.admin("GET", "/agents/a", None).await.revision(), 5, "nothing was written");
}
