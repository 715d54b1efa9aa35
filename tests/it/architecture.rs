//! The direction of imports: every path in the sources is checked against what its module may import.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use self::paths::{Named, named};

mod circles;
mod documents;
mod paths;

/// Modules that several rows share.
const SERVICES: &[&str] = &["cache", "audit", "identity", "quota", "sources", "catalog", "sessions", "http"];

/// The modules that each module may import. `ARCHITECTURE.md` states the reasons; a new module needs a row.
const MODULES: [(&str, &[&[&str]]); 19] = [
    ("model", &[]),
    ("config", &[&["model"]]),
    ("telemetry", &[&["config", "model"]]),
    ("store", &[&["config", "model", "telemetry"]]),
    ("cache", &[&["model", "telemetry", "store"]]),
    ("feed", &[&["config", "model", "telemetry", "store", "cache"]]),
    ("audit", &[&["config", "model", "telemetry", "store", "cache"]]),
    ("quota", &[&["model", "telemetry", "store"]]),
    ("identity", &[&["config", "model", "store", "cache", "feed", "quota"]]),
    ("sources", &[&["config", "model", "telemetry", "store", "cache"]]),
    ("catalog", &[&["model", "telemetry", "store", "cache", "identity", "sources"]]),
    ("sessions", &[&["model", "telemetry", "store", "cache", "identity"]]),
    ("http", &[&["config", "model", "telemetry", "cache", "audit", "identity", "quota"]]),
    ("mcp", &[SERVICES, &["config", "model", "telemetry", "feed"]]),
    ("admin", &[SERVICES, &["config", "model", "telemetry", "feed"]]),
    ("server", &[SERVICES, &["config", "model", "telemetry", "store", "mcp", "admin"]]),
    ("app", &[SERVICES, &["config", "model", "telemetry", "store", "feed", "mcp", "admin", "server"]]),
    ("cli", &[&["config", "model", "telemetry", "app"]]),
    ("main", &[&["config", "cli"]]),
];

/// Crates and the environment, each with the modules that may use it.
const CONFINED: [(&str, &[&[&str]]); 7] = [
    ("embedded_postgres", &[&["app"]]),
    ("sqlx", &[&["store"]]),
    ("axum", &[&["http", "mcp", "admin", "server"]]),
    ("hyper", &[&["http", "mcp", "server"]]),
    ("tokio", &[SERVICES, &["telemetry", "store", "feed", "mcp", "admin", "server", "app", "cli"]]),
    ("clap", &[&["cli"]]),
    ("std::env", &[&["config"]]),
];

/// Pairs of modules, of which the first must not name the second. Each is the beginning of a path.
const APART: [(&str, &str); 2] =
    [("crate::mcp::modern", "crate::mcp::legacy"), ("crate::mcp::legacy", "crate::mcp::modern")];

/// The functions of `std::env` that do not read the environment of the process.
const PURE: [&str; 2] = ["std::env::join_paths", "std::env::split_paths"];

/// The maximum number of lines of a file.
const MAX_LINES: usize = 450;

/// The forbidden paths in the file of `module`, with the reasons.
fn violations(module: &[String], text: &str) -> Vec<String> {
    let file = module.join("::");
    let paths = named(module, text);
    paths.iter().filter_map(|named| Some(format!("{file}: {}", violation(&file, named)?))).collect()
}

fn violation(file: &str, Named { path, reexport }: &Named) -> Option<String> {
    let module = |path: &str| path.split("::").nth(1).map(str::to_owned);
    let (importer, imported) = (module(file).unwrap_or_default(), module(path).unwrap_or_default());
    let internal = starts_with(path, "crate") && MODULES.iter().any(|(name, _)| *name == imported);
    if internal && imported != importer && !importer.is_empty() {
        let (_, allowed) = MODULES.iter().find(|(name, _)| *name == importer)?;
        if !allowed.iter().any(|modules| modules.contains(&imported.as_str())) {
            return Some(format!("imports {path}"));
        }
        if *reexport {
            return Some(format!("re-exports {path}, which others would import past the rules"));
        }
    }
    let apart = APART.iter().any(|(who, what)| starts_with(file, who) && starts_with(path, what));
    let confined = CONFINED.iter().any(|(what, modules)| {
        starts_with(path, what) && !modules.iter().any(|list| list.contains(&importer.as_str()))
    });
    (apart || confined && !PURE.contains(&path.as_str())).then(|| format!("names {path}"))
}

fn starts_with(path: &str, with: &str) -> bool {
    path.strip_prefix(with).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Every file of `src`, with its module.
fn sources() -> Vec<(PathBuf, Vec<String>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let with_module = |path: PathBuf| (path.clone(), module(path.strip_prefix(&root).unwrap()));
    rust_files("src").into_iter().map(with_module).collect()
}

/// Every Rust file below a directory of the repository.
fn rust_files(directory: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(directory)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

fn module(file: &Path) -> Vec<String> {
    let steps = file.with_extension("");
    let steps = steps.iter().map(|step| step.to_str().unwrap().to_owned());
    let steps = steps.filter(|step| step != "mod" && step != "lib");
    std::iter::once("crate".to_owned()).chain(steps).collect()
}

#[test]
fn files_of_a_module_do_not_import_each_other_in_circles() {
    let files = sources();
    let files: Vec<_> =
        files.iter().map(|(path, module)| (module.join("::"), fs::read_to_string(path).unwrap())).collect();
    assert_eq!(circles::circles(&files), Vec::<Vec<String>>::new());
}

#[test]
fn no_module_imports_against_the_layering() {
    let all: Vec<_> = sources()
        .iter()
        .flat_map(|(path, module)| violations(module, &fs::read_to_string(path).unwrap()))
        .collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn layering_table_lists_exactly_the_modules() {
    let existing: BTreeSet<_> =
        sources().into_iter().filter_map(|(_, module)| module.get(1).cloned()).collect();
    let listed: BTreeSet<_> = MODULES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(existing, listed);
}

#[test]
fn every_file_has_module_docs_and_at_most_450_lines() {
    for path in rust_files("src").into_iter().chain(rust_files("crates")) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} does not begin with `//! `", path.display());
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines, more than {MAX_LINES}", path.display());
    }
}

#[test]
fn soak_is_the_only_test_target_that_begins_with_s() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let packages = crates.chain([root.to_owned(), root.join("bench")]);
    let entries = packages.filter_map(|package| fs::read_dir(package.join("tests")).ok()).flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let targets = paths.filter(|path| path.extension().is_some() || path.join("main.rs").exists());
    let names: BTreeSet<_> =
        targets.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert!(names.contains("it") && names.contains("properties"), "{names:?}");
    let left_out: Vec<_> = names.iter().filter(|name| name.starts_with('s')).collect();
    assert_eq!(left_out, ["soak"], "scripts/run-tests runs the others with `--test '[!s]*'`");
}

#[test]
fn forbidden_import_is_found_in_any_position() {
    let cases = [
        ("catalog::read", "use crate::feed::Feed;", "imports crate::feed::Feed"),
        ("catalog::read", "use crate::{feed::Feed as F, model};", "imports crate::feed::Feed"),
        ("mcp::endpoint", "fn f() { let s: super::super::store::Store; }", "imports crate::store::Store"),
        ("mcp", "fn f() { crate /* here */ :: admin::router(); }", "imports crate::admin::router"),
        ("model::uri", "mod tests { fn f() { super::super::super::http::g(); } }", "imports crate::http::g"),
        ("mcp::modern::decode", "use crate::mcp::{legacy::{encode::*}};", "names crate::mcp::legacy::encode"),
        ("mcp::legacy", "use super::modern;", "names crate::mcp::modern"),
        ("admin::keys", "fn f(_: &'static ::sqlx::Error) {}", "names sqlx::Error"),
        ("catalog", "use sqlx;", "names sqlx"),
        ("cli::serve", "use std::{env, fs};", "names std::env"),
        ("app", "fn f() { std::env::var(r#\"use a;\"#); }", "names std::env::var"),
        (
            "catalog",
            "pub use crate::store::Store;",
            "re-exports crate::store::Store, which others would import past the rules",
        ),
        ("main", "use waggle::{cli, store};", "imports crate::store"),
    ];
    for (module, text, expected) in cases {
        let module: Vec<_> = format!("crate::{module}").split("::").map(str::to_owned).collect();
        assert_eq!(violations(&module, text), [format!("{}: {expected}", module.join("::"))], "{text}");
    }
}

#[test]
fn text_that_resembles_an_import_is_ignored() {
    let texts = [
        "// use crate::store::Store;\n/* use sqlx; /* nested */ use sqlx; */",
        "//! [`Store`](crate::store::Store)",
        "fn f() { g(\"crate::store::Store \\\" use sqlx;\", b\"use sqlx;\", '\"', r##\"\"# use sqlx;\"##); }",
        "fn f<'a>(a: &'a str) -> &'a str { a.sqlx() }",
        "use super::store; use self::sqlx::Error; mod sqlx {}",
        "fn f() { let p = std::env::split_paths(path); }",
    ];
    let module = ["crate", "mcp", "endpoint"].map(str::to_owned);
    for text in texts {
        assert_eq!(violations(&module, text), [""; 0], "{text}");
    }
}
