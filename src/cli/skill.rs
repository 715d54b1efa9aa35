//! `waggle skill`: pushes folders as skills of an agent, and pulls them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ::skill::{FilePath, Frontmatter, SKILL_MD};
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::admin::{Admin, Request};
use super::format::{Cell, Kind, OutputArgs};
use super::input;
use super::invocation::Invocation;
use super::object::{Objects, encoded};
use super::output::{Failure, print};
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

const FILES: Kind = Kind {
    name: "file",
    key: "path",
    columns: &[
        ("FILE", "path", Cell::Text),
        ("MIME TYPE", "mimeType", Cell::Text),
        ("BYTES", "size", Cell::Text),
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
    /// Make a skill equal to a folder with a `SKILL.md`, or add a skill; it keeps its labels, and its files their MIME types.
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
        /// Also push files and folders whose names begin with a dot.
        #[arg(long)]
        hidden: bool,
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
#[derive(Default, Deserialize)]
struct Whole {
    #[serde(default)]
    labels: Vec<String>,
    files: Vec<File>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    path: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

impl File {
    fn bytes(&self) -> Result<Vec<u8>, Failure> {
        let wrong = |why| Failure::Gateway(format!("file {:?}: {why}", self.path));
        input::bytes(self.text.as_deref(), self.blob.as_deref()).map_err(wrong)
    }
}

impl Skill {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let objects = Objects { admin: Admin::of(invocation)?, kind: &KIND, output: self.output };
        let done = |text: &str| if self.output.is_for_people() { print(text) } else { Ok(()) };
        match self.command {
            Command::Push { dir, agent, path, hidden } => {
                done(&push(&objects.admin, (&dir, hidden), &agent, path)?)
            }
            Command::List { agent } => objects.list(&format!("/agents/{agent}/skills")),
            Command::Get { path, agent } if self.output.is_for_people() => {
                get(&objects.admin, &path, &agent, self.output)
            }
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

/// Prints a skill, and its files below it.
fn get(admin: &Admin, path: &str, agent: &Slug, output: OutputArgs) -> Result<(), Failure> {
    let Whole { labels, files } = serde_json::from_slice(&admin.call(&Request::get(place(agent, path)))?)?;
    let mut skill = json!({"path": path, "labels": labels});
    let mut listed: Vec<Box<RawValue>> = Vec::new();
    for file in &files {
        let bytes = file.bytes()?;
        if file.path == SKILL_MD
            && let Ok(frontmatter) = Frontmatter::of(&bytes)
        {
            skill["name"] = frontmatter.name().into();
            skill["description"] = frontmatter.description().into();
        }
        let item = json!({"path": file.path, "mimeType": file.mime_type, "size": bytes.len()});
        listed.push(to_raw_value(&item)?);
    }
    output.object(&KIND, &to_raw_value(&skill)?)?;
    print("\n")?;
    output.list(&FILES, &listed)
}

/// Writes a folder as a skill; returns what was done.
fn push(
    admin: &Admin,
    (dir, hidden): (&Path, bool),
    agent: &Slug,
    path: Option<String>,
) -> Result<String, Failure> {
    let unreadable = |error| Failure::Input(dir.display().to_string(), error);
    let folder = fs::canonicalize(dir).map_err(unreadable)?;
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let path = path.or(name).ok_or_else(|| Failure::Usage("--path is missing".to_owned()))?;
    let mut files = Vec::new();
    read_folder(&folder, "", hidden, &mut files)?;
    if !files.iter().any(|file| file["path"] == SKILL_MD) {
        return Err(Failure::Usage(format!("{} has no SKILL.md", dir.display())));
    }
    let place = place(agent, &path);
    let found = admin.find(&place)?;
    let present: Option<Whole> =
        found.as_ref().map(|found| serde_json::from_slice(&found.body)).transpose()?;
    let Whole { labels, files: present } = present.unwrap_or_default();
    let is_hidden = |path: &str| path.split('/').any(|name| name.starts_with('.'));
    let lost = present.iter().map(|file| &*file.path).filter(|path| !hidden && is_hidden(path));
    let lost = lost.collect::<Vec<_>>().join(", ");
    keep_types(&mut files, present);
    let count = files.len();
    let body = json!({"labels": labels, "files": files});
    let written = admin.put(place, &body, found.and_then(|found| found.tag))?;
    let deleted = if lost.is_empty() { lost } else { format!("; deleted, as --hidden is not given: {lost}") };
    Ok(format!("{path} ({count} files) is at revision {}{deleted}\n", written.revision()))
}

/// Gives files the MIME types of those that they replace, unless text becomes bytes or bytes text.
fn keep_types(files: &mut [Value], present: Vec<File>) {
    let mut present: BTreeMap<_, _> = present.into_iter().map(|file| (file.path.clone(), file)).collect();
    for file in files {
        let replaced = file["path"].as_str().and_then(|path| present.remove(path));
        if let Some(File { mime_type: Some(mime_type), text, .. }) = replaced
            && text.is_some() == file["text"].is_string()
        {
            file["mimeType"] = mime_type.into();
        }
    }
}

/// Adds the files of a folder; `hidden`: also those whose names begin with a dot, which may be secrets or the repository of
/// the folder. Links are refused: what they name may be outside.
fn read_folder(folder: &Path, prefix: &str, hidden: bool, files: &mut Vec<Value>) -> Result<(), Failure> {
    let failed = |error| Failure::Input(folder.display().to_string(), error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (kind, place) = (entry.file_type().map_err(failed)?, entry.path());
        let shown = place.display().to_string();
        let name = entry.file_name().into_string();
        let name = name.map_err(|_| Failure::Usage(format!("{shown}: the name is not UTF-8")))?;
        if name.starts_with('.') && !hidden {
            continue;
        }
        if files.len() >= MAX_ENTRIES {
            return Err(Failure::Usage(format!("{shown}: more than {MAX_ENTRIES} files")));
        }
        let path = format!("{prefix}{name}");
        if kind.is_dir() {
            read_folder(&place, &format!("{path}/"), hidden, files)?;
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
    for file in files {
        let wrong = |error| Failure::Gateway(format!("unexpected file {:?}: {error}", file.path));
        let relative = FilePath::parse(&file.path).map_err(wrong)?;
        let bytes = file.bytes()?;
        let place = dir.join(relative.as_str());
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
        }
        fs::write(&place, bytes).map_err(|error| failed(&place, error))?;
    }
    Ok(format!("wrote {count} files to {}\n", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_files_keep_their_types_unless_text_becomes_bytes() {
        let present = |path: &str, text: Option<&str>| File {
            path: path.to_owned(),
            mime_type: Some("text/x-notes".to_owned()),
            text: text.map(str::to_owned),
            blob: text.is_none().then(String::new),
        };
        let mut files = [
            json!({"path": "a", "text": "new"}),
            json!({"path": "b", "blob": "AA=="}),
            json!({"path": "c", "text": "new"}),
        ];
        keep_types(
            &mut files,
            vec![present("a", Some("old")), present("b", Some("old")), present("d", None)],
        );
        let types: Vec<_> = files.iter().map(|file| file["mimeType"].as_str()).collect();
        assert_eq!(types, [Some("text/x-notes"), None, None]);
    }
}
