//! `config/waggle.toml` is the reference of the declared settings.

use super::*;

const REFERENCE: &str = include_str!("../../../config/waggle.toml");

fn names(loaded: &Loaded) -> Vec<&'static str> {
    loaded.listing.0.iter().map(|entry| entry.name).collect()
}

/// The reference file with commented settings enabled.
fn uncommented(keep: impl Fn(&str) -> bool) -> String {
    let setting = |line: &&str| {
        let key = line.split_once(" = ").map_or("", |(key, _)| key);
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let line = |line| match str::strip_prefix(line, "# ").filter(setting) {
        Some(example) if keep(example) => example,
        _ => line,
    };
    REFERENCE.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn reference_file_is_generated_from_the_declarations() {
    let declared = reference().unwrap();
    let differing = declared.lines().zip(REFERENCE.lines()).find(|(declared, written)| declared != written);
    let hint = "write it again: waggle config reference > config/waggle.toml";
    assert!(declared == REFERENCE, "{hint}; the first difference is {differing:?}");
}

#[test]
fn reference_file_has_the_built_in_defaults() {
    assert_eq!(shown(REFERENCE), shown(""));
}

#[test]
fn reference_file_names_every_setting_in_order() {
    let text = uncommented(|_| true);
    let mut section = "";
    let mut named = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, _)) = line.split_once(" = ") {
            named.push(format!("{section}.{key}"));
        }
    }
    assert_eq!(named, names(&file("").read(Purpose::Serve).ok().unwrap()));
}

#[test]
fn commented_defaults_of_the_reference_file_are_the_derived_ones() {
    let derived = uncommented(|line| line.starts_with("public_url") || line.starts_with("allowed_"));
    let [read, default] = [file(&derived), file("")].map(|given| given.settings().server);
    assert_eq!(format!("{read:?}"), format!("{default:?}"));
    assert_ne!(derived, REFERENCE);
}

#[test]
fn examples_of_the_reference_file_are_valid_except_the_key() {
    let expected = "waggle.toml:90: admin.operator_key: the value is not 53 characters long: it was truncated \
                    or extended; create one with: waggle key generate --operator";
    assert_eq!(file(&uncommented(|_| true)).refused(), expected);
}
