//! `waggle key`: generates operator keys, and manages the keys of agents and tenants.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::admin::{Admin, Request};
use super::format::{Cell, Kind, OutputArgs};
use super::invocation::Invocation;
use super::object::{ObjectMembers, Objects, encoded, items};
use super::output::{Failure, print};
use crate::model::ids::Slug;
use crate::model::key::{KeyKind, SecretKey};

const KIND: Kind = Kind {
    name: "key",
    key: "id",
    columns: &[
        ("ID", "id", Cell::Text),
        ("KEY", "display", Cell::Text),
        ("NAME", "name", Cell::Text),
        ("SCOPES", "scopes", Cell::Text),
        ("LABELS", "labels", Cell::Text),
        ("CREATED", "createdAt", Cell::Age),
        ("EXPIRES", "expiresAt", Cell::Age),
        ("REVOKED", "revokedAt", Cell::Age),
        ("LAST USED", "lastUsedAt", Cell::Age),
    ],
};

/// Keys of agents and tenants.
#[derive(Args)]
pub(super) struct Key {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

/// The agent or tenant that the keys belong to.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Owner {
    /// The agent.
    #[arg(long, value_parser = Slug::parse_agent)]
    agent: Option<Slug>,
    /// The tenant, for owner keys.
    #[arg(long)]
    tenant: Option<String>,
}

impl Owner {
    /// The path of its keys.
    fn path(&self) -> String {
        match (&self.agent, &self.tenant) {
            (Some(agent), _) => format!("/agents/{agent}/keys"),
            (None, tenant) => format!("/tenants/{}/keys", encoded(tenant.as_deref().unwrap_or_default())),
        }
    }
}

#[derive(Subcommand)]
enum Command {
    /// Generate a key and print it, or write it to a file; it is stored nowhere else.
    Generate {
        /// An operator key, for `admin.operator_key` or `admin.operator_keys_file`.
        #[arg(long, required = true)]
        operator: bool,
        /// Write the key to this new file, readable by its owner only, instead of printing it.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// List the keys of an agent or a tenant, without their secrets.
    List {
        #[command(flatten)]
        owner: Owner,
    },
    /// Print a key of an agent or a tenant, without its secret.
    Get {
        /// The id of the key.
        id: String,
        #[command(flatten)]
        owner: Owner,
    },
    /// Create a key and print it; it is shown this once.
    Create {
        #[command(flatten)]
        owner: Owner,
        #[command(flatten)]
        key: NewKey,
    },
    /// Replace the labels of a key.
    Update {
        /// The id of the key.
        id: String,
        /// A label of the key; can be repeated.
        #[arg(long = "label", value_name = "LABEL", required_unless_present = "no_labels")]
        labels: Vec<String>,
        /// Take all labels from the key.
        #[arg(long, conflicts_with = "labels")]
        no_labels: bool,
    },
    /// Replace a key by a new one and print it.
    Rotate {
        /// The id of the key.
        id: String,
        /// For how long the old key stays valid, in seconds: an hour by default, at most thirty days.
        #[arg(long, value_name = "SECONDS")]
        grace_seconds: Option<u64>,
    },
    /// Revoke a key.
    #[command(visible_alias = "delete")]
    Revoke {
        /// The id of the key.
        id: String,
        /// Also revoke the keys that were created with it.
        #[arg(long)]
        descendants: bool,
    },
}

/// A key to be created.
#[derive(Args, Serialize)]
pub(super) struct NewKey {
    /// Its name.
    #[arg(long)]
    name: String,
    /// A scope, `mcp` by default; can be repeated.
    #[arg(long = "scope", value_name = "SCOPE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<String>,
    /// A label: the key sees definitions with one of its labels, and those without labels; can be repeated.
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    /// When it expires: a time such as 2027-01-31T12:00:00Z, or a date such as 2027-01-31, at whose beginning in UTC it
    /// expires.
    #[arg(long, value_name = "TIME")]
    #[serde(rename = "expiresAt", skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// A network from which it may be used, such as 192.0.2.0/24; can be repeated.
    #[arg(long = "network", value_name = "NETWORK")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    networks: Vec<String>,
    #[command(flatten)]
    #[serde(skip_serializing_if = "KeyLimits::is_default")]
    limits: KeyLimits,
}

/// The rate of a key that is to be created, in cost units.
#[derive(Args, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct KeyLimits {
    /// Cost units per second that it may use, instead of the default of the settings; 0 for no limit.
    #[arg(long, value_name = "UNITS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<u32>,
    /// Cost units that it may use at once; by default twice those per second.
    #[arg(long, value_name = "UNITS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
}

impl KeyLimits {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What is read of a created key.
#[derive(Deserialize)]
struct Created {
    key: String,
}

impl Key {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let Self { output, command } = self;
        let objects = || Ok::<_, Failure>(Objects { admin: Admin::of(invocation)?, kind: &KIND, output });
        let path = |id: &str| format!("/keys/{}", encoded(id));
        match command {
            Command::Generate { operator: _, out } => generate(out),
            Command::List { owner } => objects()?.list(&owner.path()),
            Command::Get { id, owner } => get(&objects()?, &owner, &id),
            Command::Create { owner, key } => {
                let call = Request::new(Method::POST, owner.path()).json(&key)?;
                created(&objects()?, &call)
            }
            Command::Update { id, labels, no_labels: _ } => {
                let mut members = ObjectMembers::default();
                members.set("labels", &labels)?;
                objects()?.write("updated", &id, &Request::new(Method::PATCH, path(&id)).json(&members)?)
            }
            Command::Rotate { id, grace_seconds } => {
                let mut members = ObjectMembers::default();
                members.set_some("graceSeconds", grace_seconds.as_ref())?;
                let path = format!("{}/rotate", path(&id));
                created(&objects()?, &Request::new(Method::POST, path).json(&members)?)
            }
            Command::Revoke { id, descendants } => {
                let query = if descendants { "?descendants=true" } else { "" };
                let path = format!("{}{query}", path(&id));
                objects()?.write("revoked", &id, &Request::delete(path))
            }
        }
    }
}

/// Prints one of the keys of an owner.
fn get(objects: &Objects<'_>, owner: &Owner, id: &str) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Identified {
        id: String,
    }
    for item in items(&objects.admin, &owner.path())? {
        let found: Identified = serde_json::from_str(item.get())?;
        if found.id == id {
            return objects.output.object(&KIND, &item);
        }
    }
    Err(Failure::Gateway(format!("unknown key {id} (not_found)")))
}

/// Creates a key and prints it: alone for people, so that it can be stored in a variable.
fn created(objects: &Objects<'_>, request: &Request) -> Result<(), Failure> {
    let answer: Box<RawValue> = serde_json::from_slice(&objects.admin.call(request)?)?;
    if objects.output.is_for_people() {
        let Created { key } = serde_json::from_str(answer.get())?;
        return print(&format!("{key}\n"));
    }
    objects.output.object(&KIND, &answer)
}

fn generate(out: Option<PathBuf>) -> Result<(), Failure> {
    let key = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
    let Some(file) = out else { return print(&format!("{}\n", key.reveal())) };
    let mut options = OpenOptions::new();
    // An existing file may contain a key in use.
    let created = options.write(true).create_new(true).mode(0o600).open(&file);
    let written = created.and_then(|mut file| {
        writeln!(file, "{}", key.reveal())?;
        file.sync_all()
    });
    written.map_err(|error| Failure::File(file.display().to_string(), error))?;
    print(&format!("wrote the operator key {}… to {}\n", key.display(), file.display()))
}
