//! Documents that describe a gateway, read from a file, a folder or standard input: tenants, connections, agents, and the
//! manifests of agents.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::input;
use super::output::Failure;
use super::reference;
use crate::app::check_body;
use crate::model::ids::Slug;

/// The maximum number of files in a folder.
const MAX_FILES: usize = 10_000;
/// The maximum size of all files together, in bytes.
const MAX_BYTES: u64 = 256 << 20;
/// The maximum depth of nested folders.
const MAX_LEVELS: usize = 16;
/// Other files of a folder are not read.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];
/// The version of the documents.
pub(super) const VERSION: &str = "waggle/v1";

/// A kind of object that a document describes, in the order of their creation: each refers to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ObjectKind {
    Tenant,
    Connection,
    Agent,
}

impl ObjectKind {
    pub(super) const ALL: [Self; 3] = [Self::Tenant, Self::Connection, Self::Agent];

    /// Its name in documents and for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Connection => "connection",
            Self::Agent => "agent",
        }
    }

    /// The path of its list.
    pub(super) fn list(self) -> &'static str {
        match self {
            Self::Tenant => "/tenants",
            Self::Connection => "/connections",
            Self::Agent => "/agents",
        }
    }

    /// Checks the members of an object, which are those of the call that creates it.
    fn check(self, id: &Slug, members: &Map<String, Value>) -> Result<(), String> {
        let mut body = members.clone();
        body.insert("id".to_owned(), id.as_str().into());
        check_body(self.list(), body)
    }

    fn parse_id(self, id: &str) -> Result<Slug, String> {
        let parsed = if self == Self::Agent { Slug::parse_agent(id) } else { Slug::parse(id) };
        parsed.map_err(|error| format!("id {error}"))
    }
}

/// A tenant, a connection or an agent.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) kind: ObjectKind,
    pub(super) id: Slug,
    /// The body of its call without the id.
    pub(super) members: Map<String, Value>,
}

/// The catalog of an agent.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) agent: Slug,
    pub(super) json: String,
    /// The file that it stands in, if it is not the only document.
    pub(super) file: Option<String>,
}

/// What a file or a folder describes.
#[derive(Debug, Default)]
pub(super) struct Documents {
    /// In the order of their creation.
    pub(super) objects: Vec<Object>,
    pub(super) manifests: Vec<Manifest>,
}

/// The members that identify a document.
#[derive(Deserialize)]
struct Header {
    kind: Option<String>,
    agent: Option<String>,
}

impl Documents {
    /// Reads a file, all files of a folder, or standard input (`-`).
    pub(super) fn read(source: &str) -> Result<Self, Failure> {
        let mut found = Self::default();
        let mut places = BTreeMap::new();
        let mut left = MAX_BYTES;
        for file in files(source)? {
            let bytes = bounded(&file, &mut left)?;
            let documents =
                input::documents(&bytes).map_err(|wrong| Failure::InvalidInput(file.clone(), wrong))?;
            let several = documents.len() > 1;
            for (index, json) in documents.into_iter().enumerate() {
                let place = if several { format!("{file} (document {})", index + 1) } else { file.clone() };
                let name =
                    found.add(json, &place).map_err(|wrong| Failure::InvalidInput(place.clone(), wrong))?;
                if let Some(first) = places.insert(name.clone(), place.clone()) {
                    return Err(Failure::InvalidInput(
                        place,
                        format!("{name} is described in {first} already"),
                    ));
                }
            }
        }
        if found.count() == 0 {
            let expected = "expected documents with tenants, connections, agents or manifests";
            return Err(Failure::InvalidInput(source.to_owned(), format!("holds no document; {expected}")));
        }
        if let ([], [alone]) = (&found.objects[..], &mut found.manifests[..]) {
            // Its messages need no place.
            alone.file = None;
        }
        found.objects.sort_by_key(|object| object.kind);
        Ok(found)
    }

    /// The number of documents.
    pub(super) fn count(&self) -> usize {
        self.objects.len() + self.manifests.len()
    }

    /// Whether they describe this object.
    pub(super) fn describe(&self, kind: ObjectKind, id: &str) -> bool {
        let object = self.objects.iter().any(|object| object.kind == kind && object.id.as_str() == id);
        object || kind == ObjectKind::Agent && self.manifests.iter().any(|of| of.agent.as_str() == id)
    }

    /// Adds a document of a place; returns what it describes.
    fn add(&mut self, json: String, place: &str) -> Result<String, String> {
        let Header { kind, agent } = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        let Some(kind) = kind else {
            let agent = agent.ok_or("agent is missing; expected the id of the agent")?;
            let agent = Slug::parse_agent(&agent).map_err(|error| format!("agent {error}"))?;
            let name = format!("the manifest of {agent}");
            self.manifests.push(Manifest { agent, json, file: Some(place.to_owned()) });
            return Ok(name);
        };
        let kind = ObjectKind::ALL.into_iter().find(|known| known.name() == kind).ok_or_else(|| {
            format!("unknown kind {kind:?}, expected tenant, connection or agent; a manifest has no kind")
        })?;
        let object = object(kind, serde_json::from_str(&json).map_err(|error| error.to_string())?)?;
        let name = format!("{} {}", kind.name(), object.id);
        self.objects.push(object);
        Ok(name)
    }
}

/// An object of the members of its document.
fn object(kind: ObjectKind, mut members: Map<String, Value>) -> Result<Object, String> {
    members.remove("kind");
    if members.remove("apiVersion").is_some_and(|version| version != VERSION) {
        return Err(format!("apiVersion must be {VERSION}"));
    }
    let id =
        members.remove("id").ok_or_else(|| format!("id is missing; expected that of the {}", kind.name()))?;
    let id = kind.parse_id(id.as_str().ok_or("id: expected text")?)?;
    if kind == ObjectKind::Connection {
        // `kind` names the type of the document, so the kind of a connection is its `type`.
        if let Some(connects_to) = members.remove("type") {
            members.insert("kind".to_owned(), connects_to);
        }
        if let Some(secrets) = members.get("secrets") {
            reference::check(secrets)?;
        }
        if !members.contains_key("kind") {
            return Err("type is missing; expected http, file, s3, git or sql".to_owned());
        }
    }
    kind.check(&id, &members)?;
    Ok(Object { kind, id, members })
}

/// The files to read, those of a folder in the order of their paths.
fn files(source: &str) -> Result<Vec<String>, Failure> {
    if source == "-" || !Path::new(source).is_dir() {
        return Ok(vec![source.to_owned()]);
    }
    let mut found = Vec::new();
    add_files(Path::new(source), MAX_LEVELS, &mut found)?;
    found.sort();
    Ok(found.iter().map(|file| file.display().to_string()).collect())
}

/// Adds the files of a folder. Hidden ones are not read, and links to folders are not followed.
fn add_files(folder: &Path, levels: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let shown = || folder.display().to_string();
    let failed = |error| Failure::Input(shown(), error);
    let levels =
        levels.checked_sub(1).ok_or_else(|| Failure::InvalidInput(shown(), "lies too deep".to_owned()))?;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (kind, path) = (entry.file_type().map_err(failed)?, entry.path());
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if kind.is_dir() {
            add_files(&path, levels, found)?;
        } else if path.extension().is_some_and(|end| EXTENSIONS.iter().any(|known| end == *known)) {
            if found.len() >= MAX_FILES {
                return Err(Failure::InvalidInput(shown(), format!("holds more than {MAX_FILES} files")));
            }
            found.push(path);
        }
    }
    Ok(())
}

/// Reads a file of at most the bytes that are left.
fn bounded(file: &str, left: &mut u64) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::Input(file.to_owned(), error);
    let mut bytes = Vec::new();
    if file == "-" {
        io::stdin().lock().take(*left + 1).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        File::open(file).and_then(|open| open.take(*left + 1).read_to_end(&mut bytes)).map_err(failed)?;
    }
    let remaining = left.checked_sub(bytes.len() as u64);
    let too_long =
        || Failure::InvalidInput(file.to_owned(), format!("more than {} MiB together", MAX_BYTES >> 20));
    *left = remaining.ok_or_else(too_long)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Documents, String> {
        let folder = TempDir::new().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = folder.path().to_str().unwrap();
        Documents::read(root).map_err(|error| error.to_string().replace(root, "DIR"))
    }

    #[test]
    fn folder_is_read_in_the_order_of_creation() {
        let documents = read(&[
            (
                "a/agents.yaml",
                "kind: agent\nid: research\ntenant: acme\n---\nkind: agent\nid: notes\ntenant: acme\n",
            ),
            ("connections.yml", "kind: connection\nid: w\ntype: http\nsecrets: {headers: {env: H}}\n"),
            (
                "manifest.json",
                "{\"agent\":\"notes\",\"resources\":[] }\n{\"kind\":\"tenant\",\"id\":\"acme\"}",
            ),
            (".git/x.yaml", "not: read"),
            ("README.md", "not read"),
        ])
        .unwrap();
        let shown: Vec<_> = documents
            .objects
            .iter()
            .map(|it| (it.kind.name(), it.id.as_str(), Value::from(it.members.clone())))
            .collect();
        let expected = [
            ("tenant", "acme", json!({})),
            ("connection", "w", json!({"kind": "http", "secrets": {"headers": {"env": "H"}}})),
            ("agent", "research", json!({"tenant": "acme"})),
            ("agent", "notes", json!({"tenant": "acme"})),
        ];
        assert_eq!(shown, expected);
        assert_eq!(documents.manifests[0].json, "{\"agent\":\"notes\",\"resources\":[] }", "kept as it is");
        assert!(
            documents.describe(ObjectKind::Agent, "notes") && !documents.describe(ObjectKind::Tenant, "x")
        );
    }

    #[test]
    fn documents_that_describe_nothing_are_refused() {
        let kinds = "unknown kind \"key\", expected tenant, connection or agent; a manifest has no kind";
        for (text, expected) in [
            ("kind: key\nid: a\n", kinds),
            ("kind: tenant\n", "id is missing; expected that of the tenant"),
            ("kind: tenant\nid: A\n", "id must match ^[a-z0-9][a-z0-9_-]{0,62}$"),
            ("kind: tenant\nid: a\napiVersion: v2\n", "apiVersion must be waggle/v1"),
            ("resources: []\n", "agent is missing; expected the id of the agent"),
            (
                "kind: agent\nid: a\ntenat: acme\n",
                "unknown field `tenat`, expected one of `id`, `tenant`, `name`, `title`, `instructions`, `access`, \
                 `tools`, `enabled`, `limits`",
            ),
            (
                "kind: connection\nid: a\nsecrets: {password: hunter2}\n",
                "secrets.password: expected {\"env\": \"NAME\"}, never the secret itself",
            ),
        ] {
            assert_eq!(read(&[("a.yaml", text)]).unwrap_err(), format!("DIR/a.yaml: {expected}"));
        }
        let twice = read(&[("a.yaml", "kind: tenant\nid: a\n---\nkind: tenant\nid: a\n")]).unwrap_err();
        assert_eq!(
            twice,
            "DIR/a.yaml (document 2): tenant a is described in DIR/a.yaml (document 1) already"
        );
        let empty = read(&[("a.txt", "")]).unwrap_err();
        assert_eq!(
            empty,
            "DIR: holds no document; expected documents with tenants, connections, agents or manifests"
        );
    }
}
