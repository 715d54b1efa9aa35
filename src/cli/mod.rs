//! The command line: one file per subcommand.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 success, 1 failure, 2 invalid command
//! line or configuration; of `diff`, 2 if something would change.

mod admin;
mod agent;
mod apply;
mod audit;
mod backup;
mod completions;
mod config;
mod connection;
mod context;
mod contexts;
mod definitions;
mod demo;
mod diff;
mod doctor;
mod documents;
mod errors;
mod export;
mod format;
mod gateway;
mod health;
mod import;
mod indent;
mod input;
mod invocation;
mod key;
mod man;
mod manifest;
mod migrate;
mod mount;
mod object;
mod openapi;
mod output;
mod progress;
mod prompt;
mod reference;
mod resource;
mod restore;
mod runtime;
mod secret_source;
mod serve;
mod skill;
mod target;
mod template;
mod tenant;
#[cfg(test)]
mod tests;
mod unified;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use self::invocation::Invocation;
use self::output::Failure;
use crate::config::{Environment, Flags};

/// The commands that call a gateway, which other flags start.
const CLIENTS: [&str; 14] = [
    "context",
    "tenant",
    "connection",
    "agent",
    "key",
    "resource",
    "template",
    "prompt",
    "skill",
    "mount",
    "apply",
    "diff",
    "export",
    "import",
];
/// What their help ends with.
const WHICH_GATEWAY: &str = "The gateway and the key are those of --context NAME, of WAGGLE_URL and WAGGLE_KEY, or of the context in use: \
     waggle context add NAME --url URL.";

/// A multi-tenant MCP gateway.
#[derive(Parser)]
#[command(name = "waggle", version, disable_help_subcommand = true, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway; without a database URL, with an embedded database.
    Serve(serve::Serve),
    /// Run the gateway with a demo agent, and print commands to try it.
    Demo(demo::Demo),
    /// Apply pending migrations to the database.
    Migrate(migrate::Migrate),
    /// Copy the embedded database and its keys to a folder, also while the gateway serves.
    Backup(backup::Backup),
    /// Restore a backup into an empty data directory.
    Restore(restore::Restore),
    /// Validate or print the settings.
    #[command(subcommand)]
    Config(config::Config),
    /// Store and choose the gateways, with their keys, that commands call.
    Context(context::Context),
    /// List, create, change and delete tenants.
    Tenant(tenant::Tenant),
    /// List, create, change and delete connections to content from outside.
    Connection(connection::Connection),
    /// List, create, change and delete agents.
    Agent(agent::Agent),
    /// Generate, list, create, rotate and revoke keys.
    Key(key::Key),
    /// Manage the resources of an agent.
    Resource(resource::Resource),
    /// Manage the resource templates of an agent.
    Template(template::Template),
    /// Manage the prompts of an agent.
    Prompt(prompt::Prompt),
    /// Push folders as skills of an agent.
    Skill(skill::Skill),
    /// Mount trees of connections as resources of an agent.
    Mount(mount::Mount),
    /// Make a gateway as files describe it, and agents' catalogs equal to manifests.
    Apply(apply::Apply),
    /// Print what `apply` would change: exit code 0 if nothing, 2 if something.
    Diff(diff::Diff),
    /// Print an agent's catalog as a manifest, or write a gateway to a folder.
    Export(export::Export),
    /// Create what exported files describe, where nothing of it exists.
    Import(import::Import),
    /// Verify, tail and export the audit log.
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Ask a gateway whether it is ready: exit code 0 if it is.
    Health(health::Health),
    /// Check what a gateway with these settings depends on: files, ports, database, certificates, issuers.
    Doctor(doctor::Doctor),
    /// Print every error code with its cause and what to do, as a table in Markdown.
    Errors,
    /// Print the completions of a shell.
    Completions(completions::Completions),
    /// Write the manual pages of all commands to a folder.
    Man(man::Man),
    /// Print the OpenAPI document of the administration API.
    Openapi,
}

/// Flags of the commands that call a gateway.
#[derive(Args)]
#[command(next_help_heading = "Gateway")]
struct GatewayArgs {
    #[arg(long, global = true, value_name = "NAME", help = "The context with the gateway's URL and key")]
    context: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "A PEM file with the only certificates that the gateway's certificate is verified by"
    )]
    cacert: Option<PathBuf>,
}

/// Flags of every command. Their values are validated with the rest of the configuration.
#[derive(Args)]
#[command(next_help_heading = "Settings")]
struct Globals {
    #[arg(long, global = true, value_name = "FILE", help = "The configuration file [also: WAGGLE_CONFIG]")]
    config: Option<PathBuf>,
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        help = "The directory of the embedded database [embedded.data_dir]"
    )]
    data_dir: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        help = "The address and port to listen on [server.listen]"
    )]
    listen: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help = "The PostgreSQL database; prefer DATABASE_URL, which other users cannot see [database.url]"
    )]
    database_url: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        help = "The format of log lines, text or json [log.format]"
    )]
    log_format: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        help = "The log filter, such as info or warn,waggle=debug [log.filter]"
    )]
    log_filter: Option<String>,
}

impl Globals {
    /// The first flag that means nothing to a command that calls a gateway.
    fn of_the_gateway(&self) -> Option<&'static str> {
        let given = [
            ("--data-dir", &self.data_dir),
            ("--listen", &self.listen),
            ("--database-url", &self.database_url),
            ("--log-format", &self.log_format),
            ("--log-filter", &self.log_filter),
        ];
        given.into_iter().find(|(_, value)| value.is_some()).map(|(flag, _)| flag)
    }
}

impl From<Globals> for Flags {
    fn from(globals: Globals) -> Self {
        let Globals { config, data_dir, listen, database_url, log_format, log_filter } = globals;
        Self { config, data_dir, listen, database_url, log_format, log_filter }
    }
}

/// The command line. The help of each command shows the flags that mean something to it.
fn command() -> clap::Command {
    let hidden = |flags: clap::Command| -> Vec<Arg> {
        flags.get_arguments().map(|flag| flag.clone().hide(true)).collect()
    };
    let of_gateways = hidden(Globals::augment_args(clap::Command::new("")));
    let of_clients = hidden(GatewayArgs::augment_args(clap::Command::new("")));
    Cli::command().mut_subcommands(|command| match command.get_name() {
        name if CLIENTS.contains(&name) => command.args(&of_gateways).after_help(WHICH_GATEWAY),
        "audit" => command,
        _ => command.args(&of_clients),
    })
}

/// Whether the command only calls a gateway, which other flags start.
fn is_a_client(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some(("key", key)) => key.subcommand_name() != Some("generate"),
        Some((name, _)) => CLIENTS.contains(&name),
        None => false,
    }
}

/// Runs the command line of this process.
pub fn run(environment: &Environment) -> ExitCode {
    let parsed = command()
        .try_get_matches()
        .and_then(|matches| Ok((is_a_client(&matches), Cli::from_arg_matches(&matches)?)));
    let (is_a_client, Cli { globals, gateway: GatewayArgs { context, cacert }, command }) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return output::usage(&error),
    };
    let may_call_a_gateway = is_a_client || matches!(command, Command::Audit(_));
    if let Some(flag) = is_a_client.then(|| globals.of_the_gateway()).flatten() {
        let misplaced =
            "is a flag of the gateway itself; name the gateway to call with WAGGLE_URL or --context";
        return output::exit_code(Err(Failure::Usage(format!("{flag} {misplaced}"))));
    }
    let of_clients = [("--context", context.is_some()), ("--cacert", cacert.is_some())];
    if let Some((flag, _)) = of_clients.iter().find(|(_, given)| *given && !may_call_a_gateway) {
        let misplaced = "is a flag of commands that call a gateway, which this one does not";
        return output::exit_code(Err(Failure::Usage(format!("{flag} {misplaced}"))));
    }
    let invocation = Invocation { environment, flags: globals.into(), context, cacert };
    let done = match command {
        Command::Serve(command) => command.run(&invocation),
        Command::Demo(demo) => demo.run(&invocation),
        Command::Migrate(command) => command.run(&invocation),
        Command::Backup(command) => command.run(&invocation),
        Command::Restore(command) => command.run(&invocation),
        Command::Config(command) => command.run(&invocation),
        Command::Context(command) => command.run(&invocation),
        Command::Tenant(command) => command.run(&invocation),
        Command::Connection(command) => command.run(&invocation),
        Command::Agent(command) => command.run(&invocation),
        Command::Key(command) => command.run(&invocation),
        Command::Resource(command) => command.run(&invocation),
        Command::Template(command) => command.run(&invocation),
        Command::Prompt(command) => command.run(&invocation),
        Command::Skill(command) => command.run(&invocation),
        Command::Mount(command) => command.run(&invocation),
        Command::Apply(command) => command.run(&invocation),
        Command::Diff(command) => return output::difference(command.run(&invocation)),
        Command::Export(command) => command.run(&invocation),
        Command::Import(command) => command.run(&invocation),
        Command::Audit(command) => command.run(&invocation),
        Command::Health(command) => command.run(&invocation),
        Command::Doctor(command) => command.run(&invocation),
        Command::Errors => errors::run(),
        Command::Completions(command) => command.run(self::command()),
        Command::Man(command) => command.run(self::command()),
        Command::Openapi => openapi::run(),
    };
    output::exit_code(done)
}
