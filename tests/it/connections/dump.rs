//! A dump of the database, as `pg_dump` writes it, holds no secret, however it is encoded.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde_json::{Value, json};
use tempfile::tempdir;

use super::Keys;
use crate::support::app::Replica;
use crate::support::cluster::{Database, database};
use crate::support::events::Session;
use crate::support::webhook::Message;

/// What is not encoded in URLs.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// A text that is published, and found in every encoding.
const PUBLISHED: &str = "published/as+it=is?";

/// A dump, and the bytes of its binary columns; a character for each byte.
struct Dump(String);

impl Dump {
    async fn of(database: &Database) -> Self {
        let mut dump = database.dump().await;
        // Within rows, a binary column is shown in hexadecimal.
        let binary: Vec<_> = dump.split("\\\\x").skip(1).map(of_hex).collect();
        dump.extend(binary);
        Self(dump)
    }

    /// The names of the encodings in which it has a secret.
    fn encodings_of(&self, secret: &[u8]) -> Vec<String> {
        let found = encodings(secret).into_iter().filter(|(_, encoded)| self.0.contains(encoded));
        found.map(|(name, _)| name).collect()
    }
}

/// The bytes that hexadecimal digits stand for, up to the first other character.
fn of_hex(text: &str) -> String {
    let digits: Vec<_> = text.chars().map_while(|digit| digit.to_digit(16)).collect();
    let bytes = digits.chunks_exact(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap());
    std::iter::once('\n').chain(bytes.map(char::from)).collect()
}

/// A secret in each encoding that is searched for; a character for each byte.
fn encodings(secret: &[u8]) -> BTreeMap<String, String> {
    let hex = secret.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    let url = percent_encode(secret, UNRESERVED).to_string();
    let mut encodings = BTreeMap::from([
        ("clear".to_owned(), secret.iter().copied().map(char::from).collect()),
        ("upper-case hex".to_owned(), hex.to_uppercase()),
        ("lower-case hex".to_owned(), hex),
        ("URL".to_owned(), url),
    ]);
    for (name, engine) in [("base64", &STANDARD), ("URL-safe base64", &URL_SAFE)] {
        // After any text: without the characters that other bytes decide too.
        for before in 0..3 {
            let encoded = engine.encode([&[0; 2][..before], secret].concat());
            let own = (before * 8).div_ceil(6)..(before + secret.len()) * 8 / 6;
            encodings.insert(format!("{name} after {before} bytes"), encoded[own].to_owned());
        }
    }
    encodings
}

/// Creates a connection of each kind; returns its secrets.
async fn connections(replica: &Replica, root: &std::path::Path) -> Vec<String> {
    let kinds = [
        (
            "http",
            json!({"baseUrl": "https://api.example/"}),
            json!({"headers": {"Authorization": "Bearer correct/horse+http=1", "X-Key": "battery/staple+http=2"}}),
        ),
        ("file", json!({"root": root}), json!({})),
        (
            "s3",
            json!({"endpoint": "https://s3.example", "bucket": "bucket"}),
            json!({"accessKeyId": "AKIA/correct+s3=1", "secretAccessKey": "battery/staple+s3=2"}),
        ),
        (
            "git",
            json!({"url": "https://git.example/repository.git"}),
            json!({"username": "correct/horse+git=1", "password": "battery/staple+git=2"}),
        ),
        (
            "sql",
            json!({"url": "postgres://reader@db.example/rows", "statements": {}}),
            json!({"password": "battery/staple+sql=2"}),
        ),
    ];
    let mut all = Vec::new();
    for (kind, settings, secrets) in kinds {
        all.extend(texts(&secrets));
        let new = json!({"id": kind, "kind": kind, "tenants": "*", "settings": settings, "secrets": secrets});
        let made = replica.admin("POST", "/connections", Some(new)).await;
        assert_eq!(made.status, 201, "{kind}: {}", made.text());
    }
    // One that is replaced, and one that is refused.
    let replaced = json!({"secrets": {"headers": {"Authorization": "Bearer correct/horse+http=3"}}});
    assert_eq!(replica.admin("PATCH", "/connections/http", Some(replaced.clone())).await.status, 200);
    all.extend(texts(&replaced));
    let refused = json!({"id": "other", "kind": "http", "tenants": "*",
        "settings": {"baseUrl": "https://user:battery-staple-url@api.example/"}});
    assert_eq!(replica.admin("POST", "/connections", Some(refused)).await.status, 400);
    all.push("battery-staple-url".to_owned());
    all
}

/// All texts in a value.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Object(members) => members.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// Creates keys of every kind, a rotated one and one that nothing knows; returns what is secret of them.
async fn keys(replica: &Replica) -> Vec<String> {
    let create = async |path: &str, body: Value| replica.admin("POST", path, Some(body)).await.json();
    let owner = create("/tenants/acme/keys", json!({})).await;
    let own = create("/agents/notes/keys", json!({"scopes": ["mcp", "registry"]})).await;
    let rotate = format!("/keys/{}/rotate", own["id"].as_str().unwrap());
    let rotated = create(&rotate, json!({"graceSeconds": 60})).await;
    let mut keys = vec![replica.operator.clone()];
    keys.extend([owner, own, rotated].map(|created| created["key"].as_str().unwrap().to_owned()));
    keys.push(crate::support::app::mistyped(&keys[1]));
    for key in &keys {
        // Each is in the audit log, by what may be shown of it.
        replica.http.call("notes", key, "resources/list", json!({})).await;
    }
    let session = Session::open(replica, "notes", &keys[2], "2025-11-25").await.id;
    // The first 12 characters are public.
    keys.iter().map(|key| key[12..].to_owned()).chain([session]).collect()
}

/// Creates hooks, and sends each a request; returns their secrets, as they are shown and as bytes.
async fn hooks(replica: &Replica) -> Vec<Vec<u8>> {
    replica.put("notes", "x:1", "text").await;
    let mount = json!({"connection": "file", "path": "", "uri": "file:///"});
    assert_eq!(replica.admin("PUT", "/agents/notes/mounts/guides", Some(mount)).await.status, 201);
    let mut secrets = Vec::new();
    for body in [json!({"uris": ["x:1"]}), json!({"mount": "guides"})] {
        let made = replica.admin("POST", "/agents/notes/hooks", Some(body)).await.json();
        let (id, secret) = (made["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
        assert_eq!(Message::new("message").send(replica, id, secret).await.status, 202);
        let encoded = secret.strip_prefix("whsec_").unwrap();
        secrets.extend([encoded.as_bytes().to_vec(), STANDARD.decode(encoded).unwrap()]);
    }
    secrets
}

#[tokio::test]
async fn dump_holds_no_secret_in_any_encoding() {
    let (keyring, database, folder) = (Keys::new(), database().await, tempdir().unwrap());
    let root = folder.path().canonicalize().unwrap();
    let replica = keyring.replica(&database).set("WAGGLE_SOURCES__FILE_ROOTS", root.display()).start().await;
    replica.acme("notes").await;
    let mut secrets: Vec<_> =
        connections(&replica, &root).await.into_iter().map(String::into_bytes).collect();
    secrets.extend(keys(&replica).await.into_iter().map(String::into_bytes));
    secrets.extend(hooks(&replica).await);
    assert_eq!(secrets.len(), 7 + 2 + 6 + 4, "all of them");
    keyring.write(&[2, 1]);
    let rekeyed = replica.admin("POST", "/connection-secrets/rekey", None).await.json();
    assert_eq!(rekeyed["secrets"], 6 + 2, "of the connections, and of the hooks");
    secrets.extend([[1; 32].to_vec(), [2; 32].to_vec()]);

    // What is published is found in every encoding: the search works.
    for (nth, encoded) in encodings(PUBLISHED.as_bytes()).values().enumerate() {
        replica.put("notes", &format!("test://{nth}"), encoded).await;
    }
    replica.caught_up().await;
    let dump = Dump::of(&database).await;
    let all: Vec<_> = encodings(PUBLISHED.as_bytes()).into_keys().collect();
    assert_eq!(dump.encodings_of(PUBLISHED.as_bytes()), all);
    for name in ["https://api.example/", "notes", "message"] {
        assert!(dump.0.contains(name), "{name}");
    }
    for secret in secrets {
        let found = dump.encodings_of(&secret);
        assert!(found.is_empty(), "{}: {found:?}", String::from_utf8_lossy(&secret));
    }
}
