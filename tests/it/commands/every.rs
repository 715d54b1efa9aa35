//! Every command has a case in a table, and a place in the documentation.

use std::collections::BTreeSet;
use std::fs;

use tempfile::TempDir;

use super::cases::{ACCOUNTS, Case, DEFINITIONS, DELETED_DEFINITIONS, OTHERS};
use super::{masked, words};
use crate::apply::{output, run};
use crate::support::app::Builder;
use crate::support::cluster::database;

const DOCUMENTATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md");

/// All commands, of which each has a manual page, as `noun verb`.
async fn commands() -> BTreeSet<String> {
    let folder = TempDir::new().unwrap();
    let written = run(&[], &["man", folder.path().to_str().unwrap()], "").await;
    assert_eq!(written, output(0, "", ""));
    let pages =
        fs::read_dir(folder.path()).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap());
    let names =
        pages.filter_map(|page| Some(page.strip_suffix(".1")?.strip_prefix("waggle-")?.replace('-', " ")));
    let names: BTreeSet<_> = names.collect();
    // A noun whose verbs have pages does nothing itself.
    let has_verbs = |name: &str| names.iter().any(|other| other.starts_with(&format!("{name} ")));
    names.iter().filter(|name| !has_verbs(name)).cloned().collect()
}

#[tokio::test]
async fn every_command_has_a_case() {
    let tables: [&[Case]; 4] = [ACCOUNTS, DEFINITIONS, DELETED_DEFINITIONS, OTHERS];
    let lines: Vec<String> = tables.concat().iter().map(|(line, ..)| format!("{line} ")).collect();
    let commands = commands().await;
    assert!(commands.len() > 70, "{commands:?}");
    let has_case = |command: &String| lines.iter().any(|line| line.starts_with(&format!("{command} ")));
    let without: Vec<_> = commands.iter().filter(|command| !has_case(command)).collect();
    assert!(without.is_empty(), "add them to tests/it/commands/cases.rs: {without:?}");
}

#[tokio::test]
async fn every_command_is_in_the_documentation() {
    let text = fs::read_to_string(DOCUMENTATION).unwrap();
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| `waggle ")).collect();
    let is_documented = |command: &String| {
        let words: Vec<_> = command.split(' ').collect();
        let has =
            |row: &&&str, word: &str| row.split(|c: char| !c.is_alphanumeric()).any(|other| other == word);
        rows.iter().any(|row| words.iter().all(|word| has(&row, word)))
    };
    let without: Vec<_> = commands().await.into_iter().filter(|command| !is_documented(command)).collect();
    assert!(without.is_empty(), "add them to docs/cli.md: {without:?}");
}

/// Whether a text has the parts of a pattern in their order, and at its ends; `…` in the pattern stands for any text.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('…') else { return text == pattern };
    let (between, end) = rest.rsplit_once('…').unwrap_or(("", rest));
    let inner = text.strip_prefix(start).and_then(|text| text.strip_suffix(end));
    inner
        .and_then(|inner| between.split('…').try_fold(inner, |rest, part| Some(rest.split_once(part)?.1)))
        .is_some()
}

/// In a folder with a skill and the key of the gateway's secrets. `URL`, `ADDRESS`, `FOLDER` and `KEY_ID` in a
/// command line stand for those of the test.
#[tokio::test(flavor = "multi_thread")]
async fn other_commands_print_and_exit_as_in_the_table() {
    let (database, folder) = (database().await, TempDir::new().unwrap());
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir_all(folder.path().join("hello")).unwrap();
    fs::write(folder.path().join("hello/SKILL.md"), "---\nname: hello\ndescription: Greets.\n---\n").unwrap();
    fs::write(folder.path().join("hello/.env"), "SECRET=1\n").unwrap();
    fs::write(folder.path().join("keys"), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    let replica = Builder::new(&database).set("WAGGLE_SOURCES__KEY_FILE", path("keys")).start().await;
    replica.acme("a").await;
    let address = replica.running.admin_address.to_string();
    let url = format!("http://{address}");
    let home = folder.path().to_str().unwrap();
    let mut key_id = String::new();
    for (line, stdin, code, out, error) in OTHERS {
        let given = [("URL", url.as_str()), ("ADDRESS", &address), ("FOLDER", home), ("KEY_ID", &key_id)];
        let filled = given.iter().fold((*line).to_owned(), |line, (name, value)| line.replace(name, value));
        let variables =
            [("WAGGLE_URL", url.as_str()), ("WAGGLE_KEY", &replica.operator), ("XDG_CONFIG_HOME", home)];
        let (got, printed, refused) = run(&variables, &words(&filled), stdin).await;
        if line.starts_with("key list") {
            printed.trim().clone_into(&mut key_id);
        }
        let (_, printed, _) = masked((got, printed.replace(home, "FOLDER"), String::new()));
        let refused = refused.replace(home, "FOLDER");
        let shortened = |found: String, expected: &str| {
            if is_like(&found, expected) { expected.to_owned() } else { found }
        };
        let (_, expected, _) = masked(output(*code, out, error));
        let found = (got, shortened(printed, &expected), shortened(refused, error));
        assert_eq!(found, output(*code, &expected, error), "waggle {line}");
    }
}
