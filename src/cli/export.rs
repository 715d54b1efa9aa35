//! `waggle export`: an agent's catalog as a manifest, and a gateway as a folder of documents.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::admin::{Admin, Request};
use super::documents::{ObjectKind, VERSION};
use super::format::yaml;
use super::gateway;
use super::indent::indent;
use super::invocation::Invocation;
use super::object::encoded;
use super::output::{Failure, print};
use super::progress::Verbosity;
use crate::model::ids::Slug;

/// Members of answers that are no members of documents: what the gateway adds.
const ADDED: [&str; 4] = ["uuid", "createdAt", "state", "lastError"];

/// What the refusal of a manifest above `limits.manifest_bytes` begins with; its code, `invalid_params`, has other causes too.
const TOO_LARGE: &str = "the manifest is larger than ";

#[derive(Args)]
pub(super) struct Export {
    /// The agent whose manifest is printed; with `--dir`, the agents that are written.
    #[arg(value_name = "AGENT", value_parser = Slug::parse_agent, required_unless_present = "dir")]
    agents: Vec<Slug>,
    /// Write the agents, or the whole gateway, to a new folder that `waggle apply -f` takes.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    verbosity: Verbosity,
}

impl Export {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let admin = Admin::of(invocation)?;
        let Some(dir) = self.dir else {
            let [agent] = self.agents.as_slice() else {
                return Err(Failure::Usage("expected one agent; use --dir to export several".to_owned()));
            };
            return print(&manifest(&admin, agent.as_str())?);
        };
        let folder = Folder::create(dir)?;
        let progress = self.verbosity.steps("exporting");
        let mut count = 0;
        let mut agents: Vec<String> = self.agents.iter().map(Slug::to_string).collect();
        if agents.is_empty() {
            for (kind, name) in [(ObjectKind::Tenant, "tenants"), (ObjectKind::Connection, "connections")] {
                let ids = gateway::ids(&admin, kind)?;
                progress.expect(ids.len());
                for id in ids {
                    folder.write(&format!("{name}/{id}.yaml"), &document(&admin, kind, &id)?)?;
                    progress.advance();
                    count += 1;
                }
            }
            agents = gateway::ids(&admin, ObjectKind::Agent)?;
        }
        progress.expect(agents.len());
        let mut missing = Vec::new();
        for id in &agents {
            folder.write(&format!("agents/{id}/agent.yaml"), &document(&admin, ObjectKind::Agent, id)?)?;
            count += 1;
            match manifest(&admin, id) {
                Ok(manifest) => {
                    folder.write(&format!("agents/{id}/manifest.json"), &manifest)?;
                    count += 1;
                }
                // The others can be exported nevertheless.
                Err(Failure::Gateway(wrong)) if wrong.starts_with(TOO_LARGE) => {
                    missing.push(format!("agent {id} was exported without its manifest: {wrong}"));
                }
                Err(other) => return Err(other),
            }
            progress.advance();
        }
        progress.print(&format!("wrote {count} files to {}\n", folder.0.display()))?;
        if missing.is_empty() { Ok(()) } else { Err(Failure::Gateway(missing.join("\n"))) }
    }
}

/// The manifest of an agent.
fn manifest(admin: &Admin, agent: &str) -> Result<String, Failure> {
    let path = format!("/agents/{agent}/manifest");
    let manifest = admin.call(&Request::get(path))?;
    let manifest = String::from_utf8(manifest)
        .map_err(|_| Failure::Gateway("unexpected answer: not UTF-8".to_owned()))?;
    Ok(indent(&manifest))
}

/// The document of an object, with references in place of its secrets.
fn document(admin: &Admin, kind: ObjectKind, id: &str) -> Result<String, Failure> {
    let path = format!("{}/{}", kind.list(), encoded(id));
    let answer = admin.call(&Request::get(path))?;
    let mut members: Map<String, Value> = serde_json::from_slice(&answer)?;
    members.retain(|name, value| !(value.is_null() || name == "id" || ADDED.contains(&name.as_str())));
    if kind == ObjectKind::Connection {
        if let Some(connects_to) = members.remove("kind") {
            members.insert("type".to_owned(), connects_to);
        }
        if let Some(Value::Object(secrets)) = members.get_mut("secrets") {
            for (name, value) in secrets {
                *value = json!({"env": variable(id, name)});
            }
        }
    }
    let rest = Value::Object(members).to_string();
    let (name, id) = (kind.name(), Value::from(id));
    let rest = rest.strip_prefix('{').unwrap_or_default();
    let comma = if rest == "}" { "" } else { "," };
    yaml(&format!("{{\"apiVersion\":\"{VERSION}\",\"kind\":\"{name}\",\"id\":{id}{comma}{rest}"))
}

/// The environment variable that an exported document refers to for a secret.
fn variable(connection: &str, secret: &str) -> String {
    let name = format!("SECRET_{connection}_{secret}");
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// A new folder.
struct Folder(PathBuf);

impl Folder {
    /// Creates it. One that holds anything is refused: old documents would remain beside the new ones.
    fn create(path: PathBuf) -> Result<Self, Failure> {
        let failed = |error| Failure::File(path.display().to_string(), error);
        fs::create_dir_all(&path).map_err(failed)?;
        if fs::read_dir(&path).map_err(failed)?.next().is_some() {
            return Err(Failure::Usage(format!("{} is not empty; expected a new folder", path.display())));
        }
        Ok(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.0.join(name);
        let parent = path.parent().unwrap_or(&self.0);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text));
        written.map_err(|error| Failure::File(path.display().to_string(), error))
    }
}
