//! Skills: the administration API, uploads, the methods of MCP, labels and notifications.

mod admin;
mod commands;
mod labels;
mod methods;
mod streams;
mod uploads;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::app::{Replica, encode};
use crate::support::http::Answer;

/// The path of a skill in the administration API.
fn skill(path: &str) -> String {
    format!("/agents/a/skills?path={}", encode(path))
}

/// The path of a file of a skill in the administration API.
fn file(path: &str, file: &str) -> String {
    format!("/agents/a/skills/file?path={}&file={}", encode(path), encode(file))
}

/// A `SKILL.md`.
fn skill_md(name: &str) -> String {
    format!("---\nname: {name}\ndescription: Does {name}\n---\nHow to do {name}.\n")
}

/// The JSON of a skill with these files besides its `SKILL.md`.
fn body(name: &str, files: &[(&str, &str)]) -> Value {
    let others = files.iter().map(|(path, text)| json!({"path": path, "text": text}));
    let first = json!({"path": "SKILL.md", "text": skill_md(name)});
    json!({"files": std::iter::once(first).chain(others).collect::<Vec<_>>()})
}

/// Writes a skill; returns its revision.
async fn put(replica: &Replica, path: &str, body: Value) -> i64 {
    let answer = replica.admin("PUT", &skill(path), Some(body)).await;
    assert!(answer.status.is_success(), "{} {}", answer.status, answer.text());
    answer.revision()
}

async fn send(replica: &Replica, call: (&str, &str), mime: &str, bytes: Vec<u8>) -> Answer {
    let bearer = format!("Bearer {}", replica.operator);
    let headers = [("authorization", bearer.as_str()), ("content-type", mime)];
    replica.http.send(call.0, &format!("/admin/v1{}", call.1), &headers, bytes).await
}

fn digest(bytes: impl AsRef<[u8]>) -> String {
    let hash = Sha256::digest(bytes.as_ref());
    format!("sha256:{}", hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// A ZIP archive.
fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    use std::io::Write;
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (path, bytes) in files {
        writer.start_file(*path, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// A gzipped tar archive whose paths are written as they are.
fn tar(files: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let mut builder = tar::Builder::new(encoder);
    for (path, kind, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}
