//! `waggle tenant`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::Serialize;

use super::admin::{Admin, Request};
use super::format::{Cell, Kind, OutputArgs};
use super::invocation::Invocation;
use super::object::{BodyFile, Objects, encoded};
use super::output::Failure;

const KIND: Kind = Kind {
    name: "tenant",
    key: "id",
    columns: &[
        ("ID", "id", Cell::Text),
        ("NAME", "name", Cell::Text),
        ("CREATED", "createdAt", Cell::Age),
        ("UUID", "uuid", Cell::Text),
    ],
};

/// Who owns agents.
#[derive(Debug, Args)]
pub(super) struct Tenant {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the tenants.
    List,
    /// Print a tenant.
    Get {
        /// The id of the tenant.
        id: String,
    },
    /// Create a tenant.
    Create {
        /// The id of the tenant.
        id: String,
        #[command(flatten)]
        flags: Flags,
        #[command(flatten)]
        body: BodyFile,
    },
    /// Change a tenant; what is not given stays as it is.
    Update {
        /// The id of the tenant.
        id: String,
        #[command(flatten)]
        flags: Flags,
        #[command(flatten)]
        body: BodyFile,
    },
    /// Delete a tenant with its agents and keys.
    Delete {
        /// The id of the tenant.
        id: String,
    },
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
struct Flags {
    /// Its name for people.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The maximum age of its keys, in days.
    #[arg(long, value_name = "DAYS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_key_age_days: Option<u16>,
}

impl Tenant {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let objects = Objects { admin: Admin::of(invocation)?, kind: &KIND, output: self.output };
        let path = |id: &str| format!("/tenants/{}", encoded(id));
        match self.command {
            Command::List => objects.list("/tenants"),
            Command::Get { id } => objects.get(path(&id)),
            Command::Create { id, flags, body } => {
                let mut members = body.members()?;
                members.set("id", &id)?;
                members.replace_with(&flags)?;
                objects.write("created", &id, &Request::new(Method::POST, "/tenants").json(&members)?)
            }
            Command::Update { id, flags, body } => {
                let mut members = body.members()?;
                members.replace_with(&flags)?;
                objects.write("updated", &id, &Request::new(Method::PATCH, path(&id)).json(&members)?)
            }
            Command::Delete { id } => objects.write("deleted", &id, &Request::delete(path(&id))),
        }
    }
}
