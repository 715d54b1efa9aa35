//! `waggle skill`: pushes folders as skills of an agent, and pulls them.

use std::fs;
use std::path::{Path, PathBuf};

use ::skill::{FilePath, SKILL_MD};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};

use super::admin::{Admin, Request};
use super::format::{Cell, Kind, OutputArgs};
use super::input;
use super::object::{Objects, encoded};
use super::output::{Failure, print};
use super::sources::Sources;
use crate::model::ids::Slug;

/// The maximum number of files and folders that are read: more than a gateway takes.
const MAX_ENTRIES: usize = 20_000;

const KIND: Kind = Kind {
    name: "skill",
    key: "path",
    columns: &[
        ("PATH", "path", Cell::Text),
        ("NAME", "name", Cell::Text),
        ("DESCRIPTION", "description", Cell::Text),
        ("LABELS", "labels", Cell::Text),
    ],
};

/// Skills of an agent.
#[derive(Args)]
pub(super) struct Skill {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a skill equal to a folder with a `SKILL.md`, or add a skill; it keeps its labels.
    #[command(visible_aliases = ["create", "update"])]
    Push {
        /// The folder.
        dir: PathBuf,
        /// The agent.
        #[arg(long, value_parser = Slug::parse_agent)]
        agent: Slug,
        /// The path of the skill, such as `acme/refunds`; the name of the folder by default.
        #[arg(long)]
        path: Option<String>,
    },
    /// List the skills of an agent.
    List {
        /// The agent.
        #[arg(long, value_parser = Slug::parse_agent)]
        agent: Slug,
    },
    /// Print a skill with its files.
    Get {
        /// The path of the skill.
        path: String,
        /// The agent.
        #[arg(long, value_parser = Slug::parse_agent)]
        agent: Slug,
    },
    /// Write the files of a skill to a new folder.
    Pull {
        /// The path of the skill.
        path: String,
        /// The agent.
        #[arg(long, value_parser = Slug::parse_agent)]
        agent: Slug,
        /// The folder; that of the skill's name by default.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Delete a skill.
    Delete {
        /// The path of the skill.
        path: String,
        /// The agent.
        #[arg(long, value_parser = Slug::parse_agent)]
        agent: Slug,
    },
}

/// A skill with its contents.
#[derive(Deserialize)]
struct Whole {
    #[serde(default)]
    labels: Vec<String>,
    files: Vec<File>,
}

#[derive(Deserialize)]
struct File {
    path: String,
    text: Option<String>,
    blob: Option<String>,
}

impl Skill {
    pub(super) fn run(self, sources: &Sources<'_>) -> Result<(), Failure> {
        let objects = Objects { admin: Admin::of(sources)?, kind: &KIND, output: self.output };
        let done = |text: &str| if self.output.is_for_people() { print(text) } else { Ok(()) };
        match self.command {
            Command::Push { dir, agent, path } => done(&push(&objects.admin, &dir, &agent, path)?),
            Command::List { agent } => objects.list(&format!("/agents/{agent}/skills")),
            Command::Get { path, agent } => objects.get(place(&agent, &path)),
            Command::Pull { path, agent, dir } => done(&pull(&objects.admin, &path, &agent, dir)?),
            Command::Delete { path, agent } => {
                objects.write("deleted", &path, &Request::delete(place(&agent, &path)))
            }
        }
    }
}

/// The path of a skill in the administration API.
fn place(agent: &Slug, path: &str) -> String {
    format!("/agents/{agent}/skills?path={}", encoded(path))
}

/// Writes a folder as a skill; returns what was done.
fn push(admin: &Admin, dir: &Path, agent: &Slug, path: Option<String>) -> Result<String, Failure> {
    let unreadable = |error| Failure::Input(dir.display().to_string(), error);
    let folder = fs::canonicalize(dir).map_err(unreadable)?;
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let path = path.or(name).ok_or_else(|| Failure::Usage("--path is missing".to_owned()))?;
    let mut files = Vec::new();
    read_folder(&folder, "", &mut files)?;
    if !files.iter().any(|file| file["path"] == SKILL_MD) {
        return Err(Failure::Usage(format!("{} has no SKILL.md", dir.display())));
    }
    let place = place(agent, &path);
    let found = admin.find(&place)?;
    let present: Option<Whole> =
        found.as_ref().map(|found| serde_json::from_slice(&found.body)).transpose()?;
    let labels = present.map(|present| present.labels).unwrap_or_default();
    let count = files.len();
    let body = json!({"labels": labels, "files": files});
    let written = admin.put(place, &body, found.and_then(|found| found.tag))?;
    Ok(format!("{path} ({count} files) is at revision {}\n", written.revision()))
}

/// Adds the files of a folder. Links are refused: what they name may be outside.
fn read_folder(folder: &Path, prefix: &str, files: &mut Vec<Value>) -> Result<(), Failure> {
    let failed = |error| Failure::Input(folder.display().to_string(), error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (kind, place) = (entry.file_type().map_err(failed)?, entry.path());
        let shown = place.display().to_string();
        let name = entry.file_name().into_string();
        let name = name.map_err(|_| Failure::Usage(format!("{shown}: the name is not UTF-8")))?;
        if files.len() >= MAX_ENTRIES {
            return Err(Failure::Usage(format!("{shown}: more than {MAX_ENTRIES} files")));
        }
        let path = format!("{prefix}{name}");
        if kind.is_dir() {
            read_folder(&place, &format!("{path}/"), files)?;
        } else if kind.is_file() {
            let bytes = fs::read(&place).map_err(|error| Failure::Input(shown, error))?;
            let mut file = input::content(None, &bytes);
            file["path"] = path.into();
            files.push(file);
        } else {
            return Err(Failure::Usage(format!("{shown} is neither a file nor a folder")));
        }
    }
    Ok(())
}

/// Writes a skill to a folder; returns what was done.
fn pull(admin: &Admin, path: &str, agent: &Slug, dir: Option<PathBuf>) -> Result<String, Failure> {
    let answer = admin.call(&Request::get(place(agent, path)))?;
    let Whole { files, .. } = serde_json::from_slice(&answer)?;
    let name = path.rsplit('/').next().unwrap_or(path);
    let dir = dir.unwrap_or_else(|| PathBuf::from(name));
    let failed = |place: &Path, error| Failure::File(place.display().to_string(), error);
    // A new folder, so that nothing is overwritten and no link is followed.
    fs::create_dir(&dir).map_err(|error| failed(&dir, error))?;
    let count = files.len();
    for File { path, text, blob } in files {
        let wrong = |what: &str| Failure::Gateway(format!("unexpected file {path:?}: {what}"));
        let relative = FilePath::parse(&path).map_err(|error| wrong(&error.to_string()))?;
        let bytes = match (text, blob) {
            (Some(text), _) => text.into_bytes(),
            (None, blob) => {
                let decoded = BASE64_STANDARD.decode(blob.unwrap_or_default());
                decoded.map_err(|error| wrong(&error.to_string()))?
            }
        };
        let place = dir.join(relative.as_str());
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
        }
        fs::write(&place, bytes).map_err(|error| failed(&place, error))?;
    }
    Ok(format!("wrote {count} files to {}\n", dir.display()))
}
