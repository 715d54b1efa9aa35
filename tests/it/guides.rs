//! The commands of the guides, run in a shell, and the contents of the book.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::support::app::{Replica, gateway};

fn docs() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/docs"))
}

/// Runs the commands of a page one after another, in an empty folder; returns what they print.
async fn run(page: &str, replica: &Replica) -> String {
    let text = fs::read_to_string(docs().join(page)).unwrap();
    let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    let script = blocks.collect::<Vec<_>>().join("\n");
    assert!(!script.is_empty(), "{page} has no commands");
    let folder = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_waggle")).parent().unwrap();
    let output = Command::new("sh")
        .args(["-euc", &script])
        .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()))
        .env("WAGGLE_URL", format!("http://{}", replica.running.address))
        .env("WAGGLE_KEY", &replica.operator)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{page}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_quick_start_publish_and_read() {
    let (_database, replica) = gateway().await;
    let curl = Command::new("curl").arg("--version").output().await;
    if !curl.is_ok_and(|output| output.status.success()) {
        return;
    }
    let printed = run("quick-start.md", &replica).await;
    for expected in [
        "created tenant acme\ncreated agent notes\n",
        "notes://today",
        "\nBuy honey.\n",
        r#""text":"Buy honey.\n""#,
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    let read = replica.admin("GET", "/agents/notes/resources?uri=notes%3A%2F%2Ftoday", None).await.json();
    assert_eq!(read["contents"][0]["text"], "Buy honey and bread.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_guide_to_folders_apply_prune_and_export() {
    let (_database, replica) = gateway().await;
    let printed = run("folders.md", &replica).await;
    let none = "gateway: 0 to create, 0 to update, 0 to delete\n";
    for expected in [
        "+ tenant acme\n+ agent research\n",
        "gateway: 2 created, 0 updated, 0 deleted, 0 unchanged\n",
        "gateway: 0 created, 0 updated, 0 deleted, 2 unchanged\n",
        "- tenant leftover\n",
        "delete tenant leftover\ngateway: 0 created, 0 updated, 1 deleted, 2 unchanged\n",
        "wrote 3 files to exported\n",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    assert!(printed.ends_with(none), "{printed}");
}

#[test]
fn book_has_every_page_once() {
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    let listed: Vec<_> =
        summary.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()).collect();
    let unique: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), unique.len(), "{listed:?}");
    let names = fs::read_dir(docs()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages = names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md");
    let missing: Vec<_> = pages.filter(|page| !unique.contains(page)).collect();
    assert_eq!(missing, [""; 0], "add them to docs/SUMMARY.md");
}
