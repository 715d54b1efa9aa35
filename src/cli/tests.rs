//! The commands that the table of error codes and the pages name: each is complete, with the arguments that it requires.

use std::fs;

use super::command;
use crate::app::error_codes;

/// The commands in the spans of a text that have an argument: a flag, or a placeholder such as `ID`.
fn commands(text: &str) -> impl Iterator<Item = String> {
    let prose: String = text.split("```").step_by(2).collect();
    let spans: Vec<String> =
        prose.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")).collect();
    let is_placeholder = |word: &str| word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    spans.into_iter().filter(move |span| {
        let has_argument = span.split(' ').any(|word| word.starts_with('-') || is_placeholder(word));
        span.starts_with("waggle ") && has_argument && !span.contains(['|', '<', '>', '\\', '\'', '…', '['])
    })
}

/// A command line with values in the place of its placeholders.
fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(' ').map(|word| match word {
        "URL" => "http://127.0.0.1:8094".to_owned(),
        "SHELL" => "bash".to_owned(),
        "SECONDS" | "NUMBER" => "1".to_owned(),
        word if word.contains('=') => word.to_owned(),
        word => word.to_lowercase(),
    })
}

#[test]
fn documented_commands_have_their_required_arguments() {
    let pages = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/docs")).unwrap();
    let pages =
        pages.map(|page| page.unwrap().path()).filter(|page| page.extension().is_some_and(|e| e == "md"));
    let texts = pages.map(|page| (page.display().to_string(), fs::read_to_string(&page).unwrap()));
    let mut count = 0;
    let mut wrong = Vec::new();
    for (page, text) in texts.chain([("error_codes".to_owned(), error_codes())]) {
        for line in commands(&text) {
            count += 1;
            if let Err(error) = command().try_get_matches_from(words(&line)) {
                wrong.push(format!("{page}: {line}: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 30, "{count}");
}
