//! The command line: one file a subcommand.
//!
//! What a command is asked for goes to standard output, everything else to standard error. Exit codes: 0 done,
//! 1 failed, 2 the command line or the configuration is wrong.

mod admin;
mod apply;
mod audit;
mod config;
mod demo;
mod export;
mod health;
mod key;
mod migrate;
mod openapi;
mod output;
mod serve;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

use self::output::Failure;
use crate::config::{Environment, Flags, Loaded, Purpose};

/// A multi-tenant MCP gateway.
#[derive(Parser)]
#[command(name = "waggle", version, disable_help_subcommand = true, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway; without a database URL, on its own embedded database.
    Serve,
    /// Run the gateway with a demo agent, and print lines to try it with.
    Demo,
    /// Bring the schema of the database up to date.
    Migrate(migrate::Migrate),
    /// Check or show the settings.
    #[command(subcommand)]
    Config(config::Config),
    /// Make keys.
    #[command(subcommand)]
    Key(key::Key),
    /// Make of an agent's registry what a manifest says; `WAGGLE_URL` and `WAGGLE_KEY` say where and as whom.
    Apply(apply::Apply),
    /// Print an agent's registry as a manifest; `WAGGLE_URL` and `WAGGLE_KEY` say where and as whom.
    Export(export::Export),
    /// Verify, tail and export the audit log.
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Ask a gateway whether it is ready: exit code 0 when it is.
    Health(health::Health),
    /// Print the OpenAPI document of the admin surface.
    Openapi,
}

/// Flags of every command. Their values are checked with the rest of the configuration.
#[derive(Args)]
#[command(next_help_heading = "Settings")]
struct Globals {
    #[arg(long, global = true, value_name = "FILE", help = "The configuration file [also: WAGGLE_CONFIG]")]
    config: Option<PathBuf>,
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        help = "Where the embedded database lies [embedded.data_dir]"
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
        help = "The PostgreSQL to use; DATABASE_URL is safer, other users cannot see it [database.url]"
    )]
    database_url: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        help = "The form of log lines, text or json [log.format]"
    )]
    log_format: Option<String>,
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        help = "What is logged, such as info or warn,waggle=debug [log.filter]"
    )]
    log_filter: Option<String>,
}

impl From<Globals> for Flags {
    fn from(globals: Globals) -> Self {
        let Globals { config, data_dir, listen, database_url, log_format, log_filter } = globals;
        Self { config, data_dir, listen, database_url, log_format, log_filter }
    }
}

/// The layers that a command reads its settings from.
struct Sources<'a> {
    environment: &'a Environment,
    flags: Flags,
}

impl Sources<'_> {
    fn load(&self, purpose: Purpose) -> Result<Loaded, Failure> {
        Ok(crate::config::load(self.environment, &self.flags, purpose)?)
    }
}

/// Does what the command line of this process says.
pub fn run(environment: &Environment) -> ExitCode {
    let Cli { globals, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    let sources = Sources { environment, flags: globals.into() };
    let done = match command {
        Command::Serve => serve::run(&sources),
        Command::Demo => demo::run(&sources),
        Command::Migrate(command) => command.run(&sources),
        Command::Config(command) => command.run(&sources),
        Command::Key(command) => command.run(),
        Command::Apply(command) => command.run(&sources),
        Command::Export(command) => command.run(&sources),
        Command::Audit(command) => command.run(&sources),
        Command::Health(command) => command.run(&sources),
        Command::Openapi => openapi::run(),
    };
    output::exit_code(done)
}
