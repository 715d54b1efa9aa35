//! The documents name only files, settings, metrics and flags that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use waggle::model::method::Method;

use super::{rust_files, sources};
use crate::support::repository::git;

/// The documents whose file names are checked.
const WITH_FILES: [&str; 3] = ["ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md"];
/// The directories that a file name may be relative to.
const BASES: [&str; 6] = ["", "src", "src/mcp", "tests/it", "tests", "crates"];
/// The extensions by which a name without a directory counts as a file.
const EXTENSIONS: [&str; 7] = [".rs", ".md", ".toml", ".json", ".yaml", ".sql", ".sh"];
/// What looks like a file and is created when it is needed.
const GENERATED: [&str; 2] = ["target/", "waggle-data/"];
/// What looks like a setting and is a file.
const FILES: [&str; 2] = ["audit.key", "sources.key"];
/// The page whose test compares it with the API: the members of bodies that it names look like settings.
const OF_THE_API: &str = "docs/privileges.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All documents, by their path below the root.
fn documents() -> Vec<(String, String)> {
    let mut paths: Vec<PathBuf> =
        ["README.md", "CHANGELOG.md"].iter().chain(&WITH_FILES).map(PathBuf::from).collect();
    for folder in ["docs", "docs/adr"] {
        let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        let pages = entries.filter(|name| name.to_str().is_some_and(|name| name.ends_with(".md")));
        paths.extend(pages.map(|name| Path::new(folder).join(name)));
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        (path.display().to_string(), text)
    };
    paths.into_iter().map(read).collect()
}

/// The code spans of a document, and each line of its code blocks.
fn code(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut spans, mut lines, mut in_block) = (Vec::new(), Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            lines.push(line.trim());
        } else {
            spans.extend(line.split('`').skip(1).step_by(2));
        }
    }
    (spans, lines)
}

fn consists_of(text: &str, others: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

/// Whether a code span names a file or directory of the repository.
fn is_file_name(span: &str) -> bool {
    let known = Method::ALL.iter().any(|method| method.name() == span);
    let media_type = ["application/", "text/", "image/", "audio/"].iter().any(|kind| span.starts_with(kind));
    let file = span.contains('/') || EXTENSIONS.iter().any(|extension| span.ends_with(extension));
    let elsewhere = span.starts_with('/') || GENERATED.iter().any(|prefix| span.contains(prefix));
    consists_of(span, "_./-") && file && !known && !media_type && !elsewhere
}

fn exists(name: &str) -> bool {
    let path = |base: &str| root().join(base).join(name.trim_end_matches('/'));
    BASES.iter().map(|base| path(base)).any(|path| path.exists() || path.with_extension("rs").exists())
}

/// The names of all settings, as `section.key`.
fn settings() -> BTreeSet<String> {
    let reference = waggle::config::reference().unwrap();
    let mut section = String::new();
    let mut names = BTreeSet::new();
    for line in reference.lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, _)) = line.split_once(" = ")
            && consists_of(key, "_")
        {
            names.insert(format!("{section}.{key}"));
        }
    }
    names
}

/// The setting that a code span names, if it has the form of one.
fn setting_name(span: &str, sections: &BTreeSet<&str>) -> Option<String> {
    let name = match span.strip_prefix("WAGGLE_") {
        Some(variable) if variable.contains("__") => variable.replacen("__", ".", 1).to_ascii_lowercase(),
        _ => span.split(' ').next().unwrap_or_default().to_owned(),
    };
    let (section, key) = name.split_once('.')?;
    let file = FILES.contains(&name.as_str()) || EXTENSIONS.iter().any(|extension| name.ends_with(extension));
    (sections.contains(section) && consists_of(key, "_") && !file).then_some(name)
}

#[test]
fn documents_name_only_files_that_exist() {
    let mut missing = Vec::new();
    for (document, text) in documents().iter().filter(|(path, _)| WITH_FILES.contains(&path.as_str())) {
        let spans = code(text).0;
        assert!(spans.iter().any(|span| is_file_name(span)), "{document} names no file");
        let names = spans.into_iter().filter(|span| is_file_name(span) && !exists(span));
        missing.extend(names.map(|name| format!("{document}: {name}")));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn links_of_documents_lead_to_files_that_exist() {
    let mut missing = Vec::new();
    for (document, text) in documents() {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let local = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
        for target in local {
            let file = target.split('#').next().unwrap_or_default();
            if !root().join(&document).parent().unwrap().join(file).exists() {
                missing.push(format!("{document}: {target}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn documents_name_only_settings_that_exist() {
    let known = settings();
    let sections: BTreeSet<_> = known.iter().filter_map(|name| name.split('.').next()).collect();
    let mut unknown = Vec::new();
    for (document, text) in documents().into_iter().filter(|(path, _)| path != OF_THE_API) {
        let (spans, lines) = code(&text);
        let variables =
            lines.iter().flat_map(|line| line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
        let variables = variables.filter(|word| word.starts_with("WAGGLE_"));
        let names = spans.into_iter().chain(variables).filter_map(|span| setting_name(span, &sections));
        unknown.extend(names.filter(|name| !known.contains(name)).map(|name| format!("{document}: {name}")));
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

#[test]
fn documents_name_only_metrics_and_flags_that_exist() {
    let sources: Vec<_> =
        sources().into_iter().map(|(path, module)| (module, fs::read_to_string(path).unwrap())).collect();
    let in_source = |word: &str| sources.iter().any(|(_, text)| text.contains(&format!("\"{word}\"")));
    let in_command_line = |word: &str| {
        let cli = sources.iter().filter(|(module, _)| module.get(1).is_some_and(|name| name == "cli"));
        cli.map(|(_, text)| text).any(|text| text.contains(&word.replace('-', "_")))
    };
    let mut unknown = Vec::new();
    for (document, text) in documents() {
        let (spans, lines) = code(&text);
        let metrics = spans.iter().filter(|span| span.starts_with("waggle_") && consists_of(span, "_"));
        unknown.extend(metrics.filter(|name| !in_source(name)).map(|name| format!("{document}: {name}")));
        let commands = spans.iter().chain(&lines).filter_map(|line| line.strip_prefix("waggle "));
        let flags =
            commands.flat_map(|line| line.split([' ', '|', '`']).filter_map(|word| word.strip_prefix("--")));
        unknown
            .extend(flags.filter(|flag| !in_command_line(flag)).map(|flag| format!("{document}: --{flag}")));
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

#[test]
fn names_are_recognised_in_documents() {
    for name in ["store/write.rs", "src/cli/", "deny.toml", "crates/uri-template", "modern/dispatch.rs"] {
        assert!(is_file_name(name), "{name}");
    }
    for other in
        ["resources/read", "application/json", "/readyz", "target/conformance/", "limits.*", "key", "`a b/c`"]
    {
        assert!(!is_file_name(other), "{other}");
    }
    assert!(exists("store/write.rs") && exists("store/write") && !exists("store/nothing.rs"));
    let sections = BTreeSet::from(["server", "audit"]);
    let names =
        ["server.listen", "WAGGLE_SERVER__LISTEN", "server.listen = 1", "audit.key", "audit.rs", "e.g"];
    let found = names.map(|name| setting_name(name, &sections));
    assert_eq!(found.map(|name| name.is_some()), [true, true, true, false, false, false]);
    let known = settings();
    assert!(
        known.contains("server.listen")
            && known.contains("admin.operator_key")
            && !known.contains("server.x")
    );
}

#[test]
fn tests_that_the_makefile_names_exist() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let commands = makefile.lines().filter(|line| line.contains("cargo test"));
    let names = commands.filter_map(|line| line.split_once("--nocapture ").map(|(_, name)| name.trim()));
    let names: Vec<_> = names.filter(|name| !name.starts_with('-')).collect();
    assert!(!names.is_empty());
    let tests: Vec<_> =
        rust_files("tests").into_iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let is_test = |line: &str, name| line.split_once("fn ").is_some_and(|(_, rest)| rest.contains(name));
    for name in names {
        assert!(tests.iter().any(|test| test.lines().any(|line| is_test(line, name))), "{name}");
    }
}

#[test]
fn example_of_a_method_applies_to_the_sources() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, rest) = text.split_once("```diff\n").unwrap();
    let (diff, _) = rest.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("example.diff");
    fs::write(&file, diff).unwrap();
    git(root(), &["apply", "--check", file.to_str().unwrap()]);
}
