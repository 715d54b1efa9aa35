//! The configuration, read once and validated whole. Nothing else reads the environment.
//!
//! Four layers, each overriding the one before: built-in defaults, a TOML file, the environment, flags.
//! Unknown names and bad values of every layer are refused all together, each with its place. A section is a
//! file, and each of its settings one line there: name, kind, range, default. A field has its setting's name
//! without the unit, which its type has.

mod access;
mod admin;
mod audit;
mod cache;
mod changes;
mod costs;
mod database;
mod embedded;
mod environment;
mod file;
mod flags;
mod issuers;
mod kind;
mod layers;
mod limits;
mod log;
mod mcp;
mod metrics;
mod number;
mod origin;
mod problem;
mod public_url;
mod reader;
mod secure_url;
mod server;
mod sessions;
mod show;
mod suggest;
mod text;
mod tokens;
mod usage;
mod writes;

#[cfg(test)]
mod tests;

use std::path::Path;

pub use self::{
    access::Access,
    admin::Admin,
    audit::{Audit, AuditedEvents, CheckpointTarget, Durability},
    cache::Cache,
    changes::Changes,
    costs::Costs,
    database::Database,
    embedded::Embedded,
    environment::Environment,
    flags::Flags,
    issuers::{IssuerTenants, TokenIssuer},
    limits::Limits,
    log::{Log, LogFilter, LogFormat},
    mcp::Mcp,
    metrics::Metrics,
    origin::AllowedOrigin,
    problem::{ConfigError, Place, Problem},
    public_url::PublicUrl,
    secure_url::SecureUrl,
    server::{ForwardedHeader, Server, TlsFiles},
    sessions::Sessions,
    show::Listing,
    tokens::Tokens,
    usage::Usage,
    writes::Writes,
};
use self::{environment::CONFIG_FILE, file::ConfigFile, layers::Layers, reader::Reader};

/// Every setting, by section.
#[derive(Clone)]
pub struct Settings {
    /// Where the gateway listens and who may reach it there.
    pub server: Server,
    /// The PostgreSQL that holds everything.
    pub database: Database,
    /// The private database of a gateway that was given none.
    pub embedded: Embedded,
    /// The administration surface.
    pub admin: Admin,
    /// Access to `/metrics`.
    pub metrics: Metrics,
    /// What is remembered of credentials.
    pub access: Access,
    /// Whose access tokens are believed, and what their claims grant.
    pub tokens: Tokens,
    /// What one request, one resource and one agent may hold.
    pub limits: Limits,
    /// What a request takes from the rates.
    pub costs: Costs,
    /// How what is used is counted.
    pub usage: Usage,
    /// How long writers queue.
    pub writes: Writes,
    /// How much is kept in memory.
    pub cache: Cache,
    /// How replicas tell each other what changed, and for how long it is known.
    pub changes: Changes,
    /// The sessions of the legacy revisions, and the streams of both eras.
    pub sessions: Sessions,
    /// What the MCP endpoints tell their clients.
    pub mcp: Mcp,
    /// What is written down of who asked for what.
    pub audit: Audit,
    /// What is logged.
    pub log: Log,
}

/// What the settings are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run the gateway: nothing may be missing.
    Serve,
    /// For a task beside it, which needs no operator key.
    Assist,
}

/// The settings and how they came about.
pub struct Loaded {
    /// What the program goes by.
    pub settings: Settings,
    /// What people are shown.
    pub listing: Listing,
}

/// Reads all layers.
///
/// # Errors
/// Everything that is wrong with any of them, together.
pub fn load(environment: &Environment, flags: &Flags, purpose: Purpose) -> Result<Loaded, ConfigError> {
    read(open(environment, flags), environment, flags, purpose)
}

fn open(environment: &Environment, flags: &Flags) -> Result<Option<ConfigFile>, Problem> {
    let (path, place) = match (&flags.config, environment.config_file()) {
        (Some(path), _) => (path.as_path(), Place::Flag("--config")),
        (None, Some(path)) => (Path::new(path), Place::Variable(CONFIG_FILE.to_owned())),
        (None, None) => return Ok(None),
    };
    let problem = |message| Problem { place: Some(place), setting: None, message };
    ConfigFile::open(path).map(Some).map_err(problem)
}

fn read(
    file: Result<Option<ConfigFile>, Problem>,
    environment: &Environment,
    flags: &Flags,
    purpose: Purpose,
) -> Result<Loaded, ConfigError> {
    let mut layers = Layers::default();
    let broken = match file {
        Ok(file) => file.map(|file| file.add_to(&mut layers)).unwrap_or_default(),
        Err(problem) => vec![problem],
    };
    // What seems to be missing may stand in the file that could not be read.
    let complete = broken.is_empty();
    environment.add_to(&mut layers);
    flags.add_to(&mut layers);
    let mut reader = Reader::new(layers, broken);
    let settings = Settings::read(&mut reader, environment);
    if complete {
        settings.check_whole(&mut reader, purpose);
    }
    let entries = reader.finish().map_err(|problems| ConfigError::new(problems, settings.log.format))?;
    Ok(Loaded { settings, listing: Listing(entries) })
}

impl Settings {
    /// The order is that of `config/waggle.toml`.
    fn read(reader: &mut Reader, environment: &Environment) -> Self {
        Self {
            server: Server::read(reader),
            database: Database::read(reader),
            embedded: Embedded::read(reader, environment),
            admin: Admin::read(reader),
            metrics: Metrics::read(reader),
            access: Access::read(reader),
            tokens: Tokens::read(reader),
            limits: Limits::read(reader),
            costs: Costs::read(reader),
            usage: Usage::read(reader),
            writes: Writes::read(reader),
            cache: Cache::read(reader),
            changes: Changes::read(reader),
            sessions: Sessions::read(reader),
            mcp: Mcp::read(reader),
            audit: Audit::read(reader),
            log: Log::read(reader),
        }
    }

    /// What no setting can be blamed for alone.
    fn check_whole(&self, reader: &mut Reader, purpose: Purpose) {
        let [url, listen_url] = ["database.url", "database.listen_url"].map(|name| reader.was_given(name));
        let operator_key = ["admin.operator_key", "admin.operator_keys_file"];
        if purpose == Purpose::Serve && url && !operator_key.iter().any(|name| reader.was_given(name)) {
            reader.refuse(
                "admin.operator_key",
                "required with a database URL, or admin.operator_keys_file; make one with: waggle key generate \
                 --operator --out operator.key",
            );
        }
        if reader.was_given("database.owner_url") && !url {
            reader.refuse("database.url", "required with database.owner_url");
        }
        if listen_url && !url {
            reader.refuse("database.url", "required with database.listen_url");
        }
        self.tokens.check(reader);
        self.limits.check_uploads(reader);
        let (dear, cost) = self.costs.dearest();
        if let Some((small, burst)) = self.limits.smallest_burst().filter(|(_, burst)| *burst < cost) {
            // What was not given was not chosen.
            let blamed = if reader.was_given(dear) { dear } else { small };
            reader.refuse(
                blamed,
                &format!("{dear} is {cost}, and {small} only {burst}: it would be refused for ever"),
            );
        }
        if self.admin.listen == Some(self.server.listen) && self.server.listen.port() != 0 {
            reader.refuse("admin.listen", "the same as server.listen; leave it out to share that listener");
        }
    }
}
