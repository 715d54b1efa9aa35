//! `waggle skill`.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use super::skill_md;
use crate::apply::{output, waggle};
use crate::support::app::gateway;

#[tokio::test(flavor = "multi_thread")]
async fn folder_is_pushed_listed_pulled_and_deleted() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let folder = TempDir::new().unwrap();
    let (from, to) = (folder.path().join("refunds"), folder.path().join("pulled"));
    fs::create_dir_all(from.join("references")).unwrap();
    fs::write(from.join("SKILL.md"), skill_md("refunds")).unwrap();
    fs::write(from.join("references/b.bin"), b"\xff\0").unwrap();
    let (dir, pulled) = (from.to_str().unwrap(), to.to_str().unwrap());
    let run = async |arguments: &[&str]| {
        waggle(&replica, &key, &[&["skill"], arguments, &["--agent", "a"]].concat(), "").await
    };
    let push = ["push", dir, "--path", "acme/refunds"];
    assert_eq!(run(&push).await, output(0, "acme/refunds (2 files) is at revision 2\n", ""));
    let table = "PATH           NAME      DESCRIPTION    LABELS\nacme/refunds   refunds   Does refunds\n";
    assert_eq!(run(&["list"]).await, output(0, table, ""));
    let (code, whole, _) = run(&["get", "acme/refunds", "-o", "json"]).await;
    let whole: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!((code, whole["files"][1]["path"].as_str()), (Some(0), Some("references/b.bin")), "{whole}");
    let pull = ["pull", "acme/refunds", "--dir", pulled];
    assert_eq!(run(&pull).await, output(0, &format!("wrote 2 files to {pulled}\n"), ""));
    for file in ["SKILL.md", "references/b.bin"] {
        assert_eq!(fs::read(to.join(file)).unwrap(), fs::read(from.join(file)).unwrap());
    }
    let (code, _, error) = run(&pull).await;
    assert!(code == Some(1) && error.starts_with("cannot write "), "nothing is overwritten: {error}");
    assert_eq!(run(&["delete", "acme/refunds"]).await, output(0, "deleted skill acme/refunds\n", ""));
    assert_eq!(run(&["list", "-o", "name"]).await, output(0, "", ""));
}
