//! The files that commands read.

use std::fs;
use std::io::{self, Read};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::output::Failure;
use crate::model::resource::PartKind;

/// Reads a file; `-` is standard input.
pub(super) fn read(file: &str) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::Input(file.to_owned(), error);
    if file != "-" {
        return fs::read(file).map_err(failed);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Reads a file of text; `-` is standard input.
pub(super) fn text(file: &str) -> Result<String, Failure> {
    let not_utf_8 = |_| Failure::InvalidInput(file.to_owned(), "is not UTF-8".to_owned());
    String::from_utf8(read(file)?).map_err(not_utf_8)
}

/// Reads a file with a JSON or YAML document; `-` is standard input.
pub(super) fn document<T: DeserializeOwned>(file: &str) -> Result<T, Failure> {
    let json = as_json(&read(file)?);
    let parsed = json.and_then(|json| serde_json::from_str(&json).map_err(|error| error.to_string()));
    parsed.map_err(|wrong| Failure::InvalidInput(file.to_owned(), wrong))
}

/// The content of a file as the administration API takes it: text or base64.
pub(super) fn content(mime_type: Option<&str>, bytes: &[u8]) -> Value {
    match PartKind::of(mime_type, bytes) {
        PartKind::Text => json!({"text": String::from_utf8_lossy(bytes)}),
        PartKind::Blob => json!({"blob": BASE64_STANDARD.encode(bytes)}),
    }
}

/// The bytes of content as the administration API answers it.
pub(super) fn bytes(text: Option<&str>, blob: Option<&str>) -> Result<Vec<u8>, String> {
    match (text, blob) {
        (Some(text), _) => Ok(text.as_bytes().to_vec()),
        (None, blob) => BASE64_STANDARD
            .decode(blob.unwrap_or_default())
            .map_err(|error| format!("unexpected answer: {error}")),
    }
}

/// The JSON or YAML documents of a file, as JSON. If the first begins with `{`, all are JSON, which is kept as it is.
pub(super) fn documents(bytes: &[u8]) -> Result<Vec<String>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    if text.trim_start().starts_with('{') {
        let documents = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
        let owned = documents.map(|document| {
            let json = document.map_err(|error| error.to_string())?.get();
            check_object(json).map(|()| json.to_owned())
        });
        return owned.collect();
    }
    let documents = serde_saphyr::from_multiple_with_options::<Value>(text, yaml_1_2());
    documents.map_err(|error| wrong_yaml(&error))?.iter().map(object).collect()
}

/// The object of a YAML document as JSON.
fn object(document: &Value) -> Result<String, String> {
    let json = document.to_string();
    check_object(&json).map(|()| json)
}

/// Refuses JSON that is no object.
fn check_object(json: &str) -> Result<(), String> {
    let found = match json.as_bytes().first() {
        Some(b'{') => return Ok(()),
        Some(b'[') => "a list",
        Some(b'"') => "a text",
        _ => json,
    };
    Err(format!("expected an object with members, found {found}"))
}

/// The message about YAML that is wrong, without the settings of its parser.
fn wrong_yaml(error: &serde_saphyr::Error) -> String {
    error.to_string().replace(", set DuplicateKeyPolicy in Options if acceptable", "")
}

/// A JSON or YAML document, an object, as JSON. One that begins with `{` is JSON, which is kept as it is.
fn as_json(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    if text.trim_start().starts_with('{') {
        let checked = serde_json::from_str::<&RawValue>(text).map_err(|error| error.to_string());
        return checked.map(|_| text.to_owned());
    }
    object(&serde_saphyr::from_str_with_options(text, yaml_1_2()).map_err(|error| wrong_yaml(&error))?)
}

/// Booleans as in YAML 1.2: `true` and `false`. Names such as `no` and `y` are texts.
fn yaml_1_2() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true }
}

#[cfg(test)]
mod tests {
    use super::{as_json, documents};

    #[test]
    fn what_is_no_object_is_refused_without_terms_of_the_parsers() {
        let expected = |found: &str| format!("expected an object with members, found {found}");
        for (text, found) in [("just text", "a text"), ("- a\n- b\n", "a list"), ("7", "7"), ("", "null")] {
            assert_eq!(as_json(text.as_bytes()), Err(expected(found)), "{text}");
        }
        for (text, found) in [("just text", "a text"), ("- a\n", "a list"), ("{\"a\":1}\n[2]", "a list")] {
            assert_eq!(documents(text.as_bytes()), Err(expected(found)), "{text}");
        }
        let twice = as_json(b"a: 1\na: 2\n").unwrap_err();
        assert!(twice.contains("duplicate mapping key: a") && !twice.contains("Options"), "{twice}");
    }

    #[test]
    fn words_that_were_booleans_in_older_yaml_are_texts() {
        let yaml = "n: no\ny: [yes, on, off, N, true, False]\n";
        let json = r#"{"n":"no","y":["yes","on","off","N",true,false]}"#;
        assert_eq!(as_json(yaml.as_bytes()), Ok(json.to_owned()));
        assert_eq!(documents(format!("{yaml}---\n{yaml}").as_bytes()), Ok(vec![json.to_owned(); 2]));
    }
}
