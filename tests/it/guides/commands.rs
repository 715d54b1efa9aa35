//! The command lines of all pages: each is understood by the binary, whether or not a test runs it.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use regex::Regex;

use super::docs;

/// The pages that are read by people who run commands.
fn pages() -> Vec<PathBuf> {
    let entries = fs::read_dir(docs()).unwrap().map(|entry| entry.unwrap().path());
    let pages = entries.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let root = docs().parent().unwrap();
    pages.chain(["README.md", "SECURITY.md", "CONTRIBUTING.md"].map(|name| root.join(name))).collect()
}

/// The command lines of `waggle` in the code of a page.
fn command_lines(text: &str) -> Vec<String> {
    let blocks = text.split("```").skip(1).step_by(2).flat_map(|block| {
        let (language, block) = block.split_once('\n').unwrap_or_default();
        let is_shell = ["sh", "console"].contains(&language);
        let block = if is_shell { block.replace("\\\n", " ") } else { String::new() };
        block.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let prose: String = text.split("```").step_by(2).collect();
    let spans = prose.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")).collect::<Vec<_>>();
    let call = Regex::new(r"(?:^|[\s(])waggle ([a-z].*)").unwrap();
    let end = Regex::new(r"\s*([|&;<>)]|\s#|\s\[|…).*").unwrap();
    blocks
        .chain(spans.into_iter().filter(|span| span.starts_with("waggle ") && !span.contains('\\')))
        .filter_map(|line| Some(call.captures(line.trim().trim_start_matches("$ "))?[1].to_owned()))
        .map(|arguments| end.replace(&arguments, "").trim().to_owned())
        .collect()
}

// Compiled once: unoptimised, that takes longer than all the rest of a line.
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"(?:'[^']*'|"[^"]*"|[^\s'"])+"#).unwrap());

/// The words of a command line; quotes keep one together. Values replace the placeholders of the pages.
fn words(line: &str) -> Vec<String> {
    let words = WORD.find_iter(line).map(|word| word.as_str().replace(['\'', '"'], ""));
    words
        .map(|word| match word.as_str() {
            "SHELL" => "bash".to_owned(),
            "URL" => "http://127.0.0.1:8094".to_owned(),
            "SCOPE" => "mcp".to_owned(),
            name if name.chars().all(|c| c.is_ascii_uppercase() || c == '_') => name.to_lowercase(),
            _ => word,
        })
        .collect()
}

/// The commands that the help lists.
fn nouns() -> BTreeSet<String> {
    let help = Command::new(env!("CARGO_BIN_EXE_waggle")).env_clear().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.split_once("Commands:").unwrap().1.split_once("\n\n").unwrap().0;
    commands.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
}

#[test]
fn command_lines_of_all_pages_are_understood() {
    let (mut count, mut wrong) = (0, Vec::new());
    let nouns = nouns();
    let mut known = BTreeSet::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for line in command_lines(&text) {
            let arguments = words(&line);
            // Such as the name of the image, or of the database's user, in a command of another program.
            let is_own = arguments.first().is_some_and(|first| nouns.contains(first));
            if !is_own || !known.insert(arguments.clone()) {
                continue;
            }
            // The help is printed where it stands, unless what stands before it is not understood.
            let output = Command::new(env!("CARGO_BIN_EXE_waggle"))
                .env_clear()
                .args(&arguments)
                .arg("--help")
                .output()
                .unwrap();
            count += 1;
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr);
                let error = error.lines().next().unwrap_or_default();
                wrong.push(format!("{}: waggle {line}: {error}", page.file_name().unwrap().display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 60, "{count}");
}
