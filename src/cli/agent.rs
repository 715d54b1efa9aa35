//! `waggle agent`.

use std::net::IpAddr;

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::admin::{Admin, Request};
use super::format::{Cell, Kind, OutputArgs};
use super::invocation::Invocation;
use super::object::{BodyFile, ObjectMembers, Objects, encoded};
use super::output::Failure;

const KIND: Kind = Kind {
    name: "agent",
    key: "id",
    columns: &[
        ("ID", "id", Cell::Text),
        ("TENANT", "tenant", Cell::Text),
        ("NAME", "name", Cell::Text),
        ("ACCESS", "access", Cell::Text),
        ("ENABLED", "enabled", Cell::Text),
        ("CREATED", "createdAt", Cell::Age),
        ("UUID", "uuid", Cell::Text),
    ],
};

const USAGE: Kind = Kind {
    name: "usage",
    key: "at",
    columns: &[
        ("AT", "at", Cell::Text),
        ("METHOD", "method", Cell::Text),
        ("CALLS", "calls", Cell::Text),
        ("ERRORS", "errors", Cell::Text),
        ("DENIED", "denied", Cell::Text),
        ("BYTES", "bytes", Cell::Text),
    ],
};

const EXPLANATION: Kind = Kind {
    name: "explanation",
    key: "rule",
    columns: &[
        ("ALLOWED", "allowed", Cell::Text),
        ("RULE", "rule", Cell::Text),
        ("STATUS", "status", Cell::Text),
        ("CODE", "code", Cell::Text),
        ("DETAIL", "detail", Cell::Text),
        ("CONNECTION", "/source/connection", Cell::Text),
        ("MOUNT", "/source/mount", Cell::Text),
    ],
};

/// Hosted agents, each with an MCP endpoint.
#[derive(Debug, Args)]
pub(super) struct Agent {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the agents.
    List {
        /// Only those of this tenant.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Print an agent.
    Get {
        /// The id of the agent.
        id: String,
    },
    /// Create an agent.
    Create {
        /// The id of the agent.
        id: String,
        /// The tenant that owns it.
        #[arg(long)]
        tenant: String,
        #[command(flatten)]
        flags: Flags,
        #[command(flatten)]
        body: BodyFile,
    },
    /// Change an agent; what is not given stays as it is.
    Update {
        /// The id of the agent.
        id: String,
        #[command(flatten)]
        flags: Flags,
        #[command(flatten)]
        body: BodyFile,
    },
    /// Delete an agent with all that it publishes.
    Delete {
        /// The id of the agent.
        id: String,
    },
    /// Serve an agent that was disabled.
    Enable {
        /// The id of the agent.
        id: String,
    },
    /// Refuse all requests for an agent.
    Disable {
        /// The id of the agent.
        id: String,
    },
    /// Tell whether a request with a key would be answered, and which rule decides.
    Explain {
        /// The id of the agent.
        id: String,
        /// The id of the key.
        #[arg(long, value_name = "KEY_ID")]
        key: String,
        /// The method of the request; `resources/read` by default.
        #[arg(long)]
        method: Option<String>,
        /// The parameters of the request, as JSON.
        #[arg(long, value_name = "JSON", requires = "method")]
        params: Option<String>,
        /// The address of the client.
        #[arg(long)]
        address: Option<IpAddr>,
    },
    /// Print calls, errors and bytes of an agent by method.
    Usage {
        /// The id of the agent.
        id: String,
        /// Not before this time (RFC 3339), or this date in UTC.
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// Before this time (RFC 3339), or this date in UTC.
        #[arg(long, value_name = "TIME")]
        to: Option<String>,
        /// The length of a period.
        #[arg(long, value_enum)]
        bucket: Option<Bucket>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Access {
    /// With a key or token alone.
    Key,
    /// Read by anybody.
    Public,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Bucket {
    Hour,
    Day,
}

#[derive(Debug, Args, Serialize)]
struct Flags {
    /// Its name for people.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its title for people.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// What a model should know of it.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    /// Who may read it.
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Access>,
    /// A set of tools that it offers, such as `search`; replaces its tools; can be repeated.
    #[arg(long = "tools", value_name = "SET")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<String>,
}

impl Agent {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let objects = Objects { admin: Admin::of(invocation)?, kind: &KIND, output: self.output };
        let path = |id: &str| format!("/agents/{}", encoded(id));
        let change = |id: &str, verb: &str, members: &ObjectMembers| {
            objects.write(verb, id, &Request::new(Method::PATCH, path(id)).json(members)?)
        };
        match self.command {
            Command::List { tenant: None } => objects.list("/agents"),
            Command::List { tenant: Some(tenant) } => {
                objects.list(&format!("/agents?tenant={}", encoded(&tenant)))
            }
            Command::Get { id } => objects.get(path(&id)),
            Command::Create { id, tenant, flags, body } => {
                let mut members = body.members()?;
                members.set("id", &id)?;
                members.set("tenant", &tenant)?;
                members.replace_with(&flags)?;
                objects.write("created", &id, &Request::new(Method::POST, "/agents").json(&members)?)
            }
            Command::Update { id, flags, body } => {
                let mut members = body.members()?;
                members.replace_with(&flags)?;
                change(&id, "updated", &members)
            }
            Command::Delete { id } => objects.write("deleted", &id, &Request::delete(path(&id))),
            Command::Enable { id } => change(&id, "enabled", &enabled(true)?),
            Command::Disable { id } => change(&id, "disabled", &enabled(false)?),
            Command::Explain { id, key, method, params, address } => {
                let mut members = ObjectMembers::default();
                members.set("keyId", &key)?;
                members.set_some("request", message(method, params)?.as_ref())?;
                members.set_some("address", address.as_ref())?;
                let call = Request::new(Method::POST, format!("{}/explain", path(&id))).json(&members)?;
                let answer: Box<RawValue> = serde_json::from_slice(&objects.admin.call(&call)?)?;
                self.output.object(&EXPLANATION, &answer)
            }
            Command::Usage { id, from, to, bucket } => {
                let bucket = bucket.map(|bucket| if matches!(bucket, Bucket::Hour) { "hour" } else { "day" });
                let parameters = [("from", from), ("to", to), ("bucket", bucket.map(str::to_owned))];
                let set = parameters.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
                let query: Vec<_> = set.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
                let usage = Objects { kind: &USAGE, ..objects };
                let path = format!("{}/usage?{}", path(&id), query.join("&"));
                let answer = usage.admin.call(&Request::get(path))?;
                let Items { items } = serde_json::from_slice(&answer)?;
                usage.output.list(&USAGE, &items)
            }
        }
    }
}

#[derive(serde::Deserialize)]
struct Items {
    items: Vec<Box<RawValue>>,
}

fn enabled(enabled: bool) -> Result<ObjectMembers, Failure> {
    let mut members = ObjectMembers::default();
    members.set("enabled", &enabled)?;
    Ok(members)
}

fn message(method: Option<String>, params: Option<String>) -> Result<Option<Value>, Failure> {
    let params: Option<Value> = params
        .map(|params| serde_json::from_str(&params))
        .transpose()
        .map_err(|error| Failure::Usage(format!("--params: {error}")))?;
    Ok(method.map(|method| match params {
        None => json!({"method": method}),
        Some(params) => json!({"method": method, "params": params}),
    }))
}
