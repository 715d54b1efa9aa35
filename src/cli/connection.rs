//! `waggle connection`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::admin::{Admin, Request};
use super::format::{Cell, Kind, OutputArgs};
use super::input;
use super::invocation::Invocation;
use super::object::{BodyFile, ObjectMembers, Objects, encoded};
use super::output::{Failure, print};
use super::secret_source::SecretSource;

const KIND: Kind = Kind {
    name: "connection",
    key: "id",
    columns: &[
        ("ID", "id", Cell::Text),
        ("KIND", "kind", Cell::Text),
        ("TENANTS", "tenants", Cell::Text),
        ("STATE", "state", Cell::Text),
        ("LAST ERROR", "/lastError/reason", Cell::Text),
        ("FAILED", "/lastError/at", Cell::Age),
        ("CREATED", "createdAt", Cell::Age),
    ],
};

/// Where content from outside is.
#[derive(Debug, Args)]
pub(super) struct Connection {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the connections.
    List,
    /// Print a connection, without its secrets.
    Get {
        /// The id of the connection.
        id: String,
    },
    /// Create a connection.
    Create {
        /// The id of the connection.
        id: String,
        /// What it connects to: http, file, s3, git or sql.
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        flags: Flags,
        #[command(flatten)]
        body: BodyFile,
    },
    /// Change a connection; what is not given stays as it is.
    Update {
        /// The id of the connection.
        id: String,
        #[command(flatten)]
        flags: Flags,
        /// Remove a secret; can be repeated.
        #[arg(long, value_name = "NAME")]
        remove_secret: Vec<String>,
        #[command(flatten)]
        body: BodyFile,
    },
    /// Delete a connection that no definition names.
    Delete {
        /// The id of the connection.
        id: String,
    },
    /// Fetch content as a read would, and print how that went.
    Test {
        /// The id of the connection.
        id: String,
        /// A path below that of the connection.
        #[arg(long, required_unless_present = "statement")]
        path: Option<String>,
        /// The name of a statement of the connection, with `@` before it.
        #[arg(long)]
        statement: Option<String>,
    },
    /// Encrypt the secrets of all connections under the first key of `sources.key_file`, while the gateway serves.
    Rekey,
}

/// Members of a connection.
#[derive(Debug, Args)]
struct Flags {
    /// A tenant that may use it, `*` for all; can be repeated. Replaces its tenants.
    #[arg(long = "tenant", value_name = "TENANT")]
    tenants: Vec<String>,
    /// A file with members of its settings, JSON or YAML; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    settings: Option<String>,
    /// A secret, a text or a JSON object, from an environment variable (NAME=env:VARIABLE) or a file (NAME=file:PATH); can be
    /// repeated.
    #[arg(long = "secret", value_name = "NAME=SOURCE")]
    secrets: Vec<String>,
    /// A limit, such as timeoutMs=2000; can be repeated.
    #[arg(long = "limit", value_name = "NAME=NUMBER")]
    limits: Vec<String>,
    /// Whether anything is fetched from it.
    #[arg(long, value_name = "BOOL")]
    enabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rekeyed {
    secrets: usize,
    key_id: String,
}

impl Connection {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let objects = Objects { admin: Admin::of(invocation)?, kind: &KIND, output: self.output };
        let path = |id: &str| format!("/connections/{}", encoded(id));
        match self.command {
            Command::List => objects.list("/connections"),
            Command::Get { id } => objects.get(path(&id)),
            Command::Create { id, kind, flags, body } => {
                let mut members = flags.merge_into(body, &[], invocation)?;
                members.set("id", &id)?;
                members.set_some("kind", kind.as_ref())?;
                let call = Request::new(Method::POST, "/connections").json(&members)?;
                objects.write("created", &id, &call)
            }
            Command::Update { id, flags, remove_secret, body } => {
                let members = flags.merge_into(body, &remove_secret, invocation)?;
                objects.write("updated", &id, &Request::new(Method::PATCH, path(&id)).json(&members)?)
            }
            Command::Delete { id } => objects.write("deleted", &id, &Request::delete(path(&id))),
            Command::Test { id, path: place, statement } => {
                let mut source = ObjectMembers::default();
                source.set_some("path", place.as_ref())?;
                source.set_some("statement", statement.as_ref())?;
                let mut members = ObjectMembers::default();
                members.set("source", &source)?;
                let call = Request::new(Method::POST, format!("{}/test", path(&id))).json(&members)?;
                let answer: Value = serde_json::from_slice(&objects.admin.call(&call)?)?;
                match answer["reason"].as_str() {
                    None => print(&format!("{} bytes in {} ms\n", answer["bytes"], answer["millis"])),
                    Some(reason) => Err(Failure::Gateway(format!("the fetch failed: {reason}"))),
                }
            }
            Command::Rekey => {
                let call = Request::new(Method::POST, "/connection-secrets/rekey");
                let progress = self.output.verbosity().task("encrypting secrets");
                let answer = objects.admin.call(&call);
                drop(progress);
                let Rekeyed { secrets, key_id } = serde_json::from_slice(&answer?)?;
                let done = format!("{secrets} secrets were encrypted under the key {key_id}\n");
                if self.output.is_for_people() { print(&done) } else { Ok(()) }
            }
        }
    }
}

impl Flags {
    /// The members of the file, replaced by those that are given.
    fn merge_into(
        self,
        body: BodyFile,
        removed_secrets: &[String],
        invocation: &Invocation<'_>,
    ) -> Result<ObjectMembers, Failure> {
        let mut members = body.members()?;
        match self.tenants.as_slice() {
            [all] if all == "*" => members.set("tenants", all)?,
            tenants => members.set_list("tenants", tenants)?,
        }
        if let Some(file) = self.settings {
            let settings: Map<String, Value> = input::document(&file)?;
            members.set("settings", &settings)?;
        }
        let mut secrets = Map::new();
        for given in &self.secrets {
            let (name, place) = pair("--secret", given)?;
            secrets.insert(name.to_owned(), secret(name, place, invocation)?);
        }
        secrets.extend(removed_secrets.iter().map(|name| (name.clone(), Value::Null)));
        if !secrets.is_empty() {
            members.set("secrets", &secrets)?;
        }
        let mut limits = Map::new();
        for given in &self.limits {
            let (name, value) = pair("--limit", given)?;
            let wrong = |_| Failure::Usage(format!("--limit {given}: expected a whole number"));
            limits.insert(name.to_owned(), json!(value.parse::<u64>().map_err(wrong)?));
        }
        if !limits.is_empty() {
            members.set("limits", &limits)?;
        }
        members.set_some("enabled", self.enabled.as_ref())?;
        Ok(members)
    }
}

fn pair<'a>(flag: &str, given: &'a str) -> Result<(&'a str, &'a str), Failure> {
    // What is given may be a secret by mistake.
    given.split_once('=').ok_or_else(|| Failure::Usage(format!("{flag}: expected NAME=VALUE")))
}

/// The value of a secret.
fn secret(name: &str, place: &str, invocation: &Invocation<'_>) -> Result<Value, Failure> {
    let flag = (&*format!("--secret {name}"), "env:VARIABLE or file:PATH, never the secret");
    let text = match SecretSource::parse(place, invocation.environment, flag)? {
        SecretSource::Variable(value) => value.to_owned(),
        SecretSource::File(file) => {
            let text = input::text(file)?;
            text.strip_suffix('\n').unwrap_or(&text).to_owned()
        }
    };
    let object = serde_json::from_str(&text).ok().filter(Value::is_object);
    Ok(object.unwrap_or(Value::String(text)))
}
