//! `waggle mount`.

use clap::Args;
use serde::Serialize;

use super::definitions::{DefinitionCommand, DefinitionFlags, DefinitionKind};
use super::format::{Cell, Kind, OutputArgs};
use super::invocation::Invocation;
use super::output::Failure;

/// Mounts of an agent: trees of connections whose files are resources.
#[derive(Debug, Args)]
pub(super) struct Mount {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: DefinitionCommand<MountFlags>,
}

/// The members of mounts.
#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
struct MountFlags {
    /// The connection.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<String>,
    /// The directory in the connection, such as guides/.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// A branch, tag or commit, in place of the connection's.
    #[arg(long = "ref")]
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    /// What the URIs of the files begin with; ends in a slash.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
    /// A glob of files, such as **/*.md. Replaces the globs; can be repeated.
    #[arg(long, value_name = "GLOB")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    include: Vec<String>,
    /// A glob of files that are left out. Replaces these globs; can be repeated.
    #[arg(long, value_name = "GLOB")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exclude: Vec<String>,
    /// For how many milliseconds content is answered without asking the source again.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u32>,
    /// For how many milliseconds more it is answered while the source fails.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_ms: Option<u32>,
    /// A label: only callers who have one of its labels see its files. Replaces its labels; can be repeated.
    #[arg(long = "label", value_name = "LABEL")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
}

impl DefinitionFlags for MountFlags {
    const KIND: DefinitionKind = DefinitionKind {
        kind: Kind {
            name: "mount",
            key: "name",
            columns: &[
                ("NAME", "name", Cell::Text),
                ("CONNECTION", "connection", Cell::Text),
                ("PATH", "path", Cell::Text),
                ("URI", "uri", Cell::Text),
                ("STATE", "state", Cell::Text),
                ("REASON", "reason", Cell::Text),
                ("ENTRIES", "entries", Cell::Text),
                ("LABELS", "labels", Cell::Text),
            ],
        },
        noun: "mount",
        printed_with: "",
        created_from: "",
        list: "mounts",
        parameter: None,
    };
}

impl Mount {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        self.command.run(invocation, self.output)
    }
}
