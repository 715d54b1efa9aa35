//! The commands of the guides, run in a shell, and the contents of the book.

mod commands;
mod replicas;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
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

/// The pages that the summary lists, below `docs/`.
fn pages() -> Vec<String> {
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    summary.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()).collect()
}

#[test]
fn book_has_every_page_once() {
    let listed = pages();
    let unique: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), unique.len(), "{listed:?}");
    let below = |folder: &str| {
        let entries = fs::read_dir(docs().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let folder = folder.to_owned();
        names
            .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
            .map(move |name| folder.clone() + &name)
    };
    let missing: Vec<_> = below("").chain(below("adr/")).filter(|page| !unique.contains(page)).collect();
    assert_eq!(missing, [""; 0], "add them to docs/SUMMARY.md");
}

/// A page without its code.
fn prose(text: &str) -> String {
    let outside: Vec<_> = text.split("```").step_by(2).collect();
    outside.join("").split('`').enumerate().fold(String::new(), |text, (index, part)| {
        // The text of a link may be code.
        if index % 2 == 0 || !part.contains("](") { text + part } else { text }
    })
}

/// The ids that mdBook gives to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let link = regex::Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let mut ids = BTreeSet::new();
    for heading in prose(text).lines().filter_map(|line| line.strip_prefix('#')) {
        let heading = link.replace_all(heading.trim_start_matches('#').trim(), "$1").to_lowercase();
        let kept =
            heading.chars().filter(|c| c.is_alphanumeric() || c.is_whitespace() || matches!(c, '_' | '-'));
        let id: String = kept.map(|c| if c.is_whitespace() { '-' } else { c }).collect();
        let unique = (1..).map(|n| format!("{id}-{n}")).find(|id| !ids.contains(id));
        ids.insert(if ids.contains(&id) { unique.unwrap() } else { id });
    }
    ids
}

/// The links of a document that lead nowhere; those of a page of the book may only lead to its pages and images.
fn broken(path: &Path, pages: Option<&BTreeSet<PathBuf>>) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let prose = prose(&text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let is_broken = |target: &&str| {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let to = if file.is_empty() { path.to_owned() } else { path.parent().unwrap().join(file) };
        let Ok(to) = to.canonicalize() else { return true };
        let image = to.starts_with(docs().join("images"));
        let elsewhere = pages.is_some_and(|pages| !image && !pages.contains(&to));
        elsewhere || !anchor.is_empty() && !anchors(&fs::read_to_string(&to).unwrap()).contains(anchor)
    };
    let broken = targets.filter(|target| !target.contains("://")).filter(is_broken);
    broken.map(|target| format!("{}: {target}", path.display())).collect()
}

#[test]
fn links_of_the_book_and_the_documents_resolve() {
    let book: BTreeSet<_> = pages().iter().map(|page| docs().join(page).canonicalize().unwrap()).collect();
    let mut wrong: Vec<_> = book.iter().flat_map(|page| broken(page, Some(&book))).collect();
    let documents = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
    let clients = ["clients/python/README.md", "clients/typescript/README.md"];
    let root = docs().parent().unwrap();
    wrong.extend(documents.iter().chain(&clients).flat_map(|document| broken(&root.join(document), None)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
