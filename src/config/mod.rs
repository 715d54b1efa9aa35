//! The configuration, read once and validated as a whole. Nothing else reads the environment.
//!
//! Four layers, each overriding the one before: built-in defaults, a TOML file, the environment, flags.
//! All unknown names and invalid values of every layer are reported together, each with its source. A section is a
//! file, and each of its settings one row there: documentation, name, kind, range and default
//! (see the module `section`). A field has the name of its setting without the unit, which its type carries.

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
mod issuers;
mod kind;
mod layers;
mod limits;
mod log;
mod log_format;
mod mcp;
mod metrics;
mod number;
mod origin;
mod problem;
mod reader;
mod search;
mod section;
mod server;
mod sessions;
mod show;
mod sources;
mod text;
mod tokens;
mod traces;
mod urls;
mod usage;
mod writes;

#[cfg(test)]
mod tests;

use std::path::Path;

pub use self::access::Access;
pub use self::admin::Admin;
pub use self::audit::{Audit, AuditedEvents, CheckpointTarget, Durability};
pub use self::cache::Cache;
pub use self::changes::Changes;
pub use self::costs::Costs;
pub use self::database::Database;
pub use self::embedded::Embedded;
use self::environment::CONFIG_FILE;
pub use self::environment::Environment;
use self::file::ConfigFile;
pub use self::issuers::{IssuerTenants, TokenIssuer};
pub use self::layers::Flags;
use self::layers::Layers;
pub use self::limits::Limits;
pub use self::log::{AccessLog, Log, LogFilter};
pub use self::log_format::LogFormat;
pub use self::mcp::Mcp;
pub use self::metrics::Metrics;
pub use self::origin::AllowedOrigin;
pub use self::problem::{ConfigError, Problem, Source};
use self::reader::Reader;
pub use self::search::Search;
pub use self::server::{ForwardedHeader, Server, TlsFiles};
pub use self::sessions::Sessions;
pub use self::show::Listing;
pub use self::sources::Sources;
pub use self::tokens::Tokens;
pub use self::traces::Traces;
pub use self::urls::{PublicUrl, SecureUrl};
pub use self::usage::Usage;
pub use self::writes::Writes;

/// Every setting, by section.
#[derive(Clone)]
pub struct Settings {
    /// Listener, TLS, accepted hosts and origins, proxies, and the bounds of connections.
    pub server: Server,
    /// The PostgreSQL database.
    pub database: Database,
    /// The private database of a gateway without a database URL.
    pub embedded: Embedded,
    /// The administration API.
    pub admin: Admin,
    /// Access to `/metrics`, and metrics of tenants.
    pub metrics: Metrics,
    /// Cached credentials, and protection from guessing.
    pub access: Access,
    /// The issuers of access tokens.
    pub tokens: Tokens,
    /// Bounds on requests, catalogs, rates and streams.
    pub limits: Limits,
    /// The cost of a request.
    pub costs: Costs,
    /// How usage is counted.
    pub usage: Usage,
    /// The write queue of an agent.
    pub writes: Writes,
    /// How much is held in memory.
    pub cache: Cache,
    /// The search in what an agent publishes.
    pub search: Search,
    /// Content from outside.
    pub sources: Sources,
    /// Notifications between replicas, and the retention of changes.
    pub changes: Changes,
    /// Sessions of the legacy revisions, and streams of both eras.
    pub sessions: Sessions,
    /// The answers of the MCP endpoints.
    pub mcp: Mcp,
    /// Which events are audited.
    pub audit: Audit,
    /// Log format and filter.
    pub log: Log,
    /// What spans show.
    pub traces: Traces,
    /// The export of traces, if it is configured.
    pub otel: Option<trace_export::Config>,
}

/// What the settings are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run the gateway: all required settings must be set.
    Serve,
    /// For another command, which needs no operator key.
    Assist,
}

/// The settings and their sources.
pub struct Loaded {
    /// The effective settings.
    pub settings: Settings,
    /// The settings for display.
    pub listing: Listing,
}

/// Reads all layers.
///
/// # Errors
/// All problems of all layers.
pub fn load(environment: &Environment, flags: &Flags, purpose: Purpose) -> Result<Loaded, ConfigError> {
    read(open(environment, flags), environment, flags, purpose)
}

fn open(environment: &Environment, flags: &Flags) -> Result<Option<ConfigFile>, Problem> {
    let (path, source) = match (&flags.config, environment.config_file()) {
        (Some(path), _) => (path.as_path(), Source::Flag("--config")),
        (None, Some(path)) => (Path::new(path), Source::Variable(CONFIG_FILE.to_owned())),
        (None, None) => return Ok(None),
    };
    let problem = |message| Problem { source: Some(source), setting: None, message };
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
    // Settings that seem to be missing may be in the file that could not be read.
    let complete = broken.is_empty();
    environment.add_to(&mut layers);
    flags.add_to(&mut layers);
    let mut reader = Reader::new(layers, environment.clone(), broken);
    let mut settings = Settings::read(&mut reader);
    if let Some((_, burst)) = settings.limits.smallest_burst() {
        settings.costs.fit(burst, &mut reader);
    }
    if complete {
        settings.check_whole(&mut reader, purpose);
    }
    let entries = reader.finish().map_err(|problems| ConfigError::new(problems, settings.log.format))?;
    Ok(Loaded { settings, listing: Listing(entries) })
}

/// The reference configuration: every setting with its documentation and default, as `config/waggle.toml`.
///
/// # Errors
/// None as long as the defaults are valid.
pub fn reference() -> Result<String, ConfigError> {
    let loaded = read(Ok(None), &Environment::default(), &Flags::default(), Purpose::Assist)?;
    Ok(loaded.listing.reference())
}

impl Settings {
    /// In the order of `config/waggle.toml`.
    fn read(reader: &mut Reader) -> Self {
        Self {
            server: Server::read(reader),
            database: Database::read(reader),
            embedded: Embedded::read(reader),
            admin: Admin::read(reader),
            metrics: Metrics::read(reader),
            access: Access::read(reader),
            tokens: Tokens::read(reader),
            limits: Limits::read(reader),
            costs: Costs::read(reader),
            usage: Usage::read(reader),
            writes: Writes::read(reader),
            cache: Cache::read(reader),
            search: Search::read(reader),
            sources: Sources::read(reader),
            changes: Changes::read(reader),
            sessions: Sessions::read(reader),
            mcp: Mcp::read(reader),
            audit: Audit::read(reader),
            log: Log::read(reader),
            traces: Traces::read(reader),
            otel: traces::export(reader),
        }
    }

    /// Reports missing settings, and settings that contradict each other.
    fn check_whole(&self, reader: &mut Reader, purpose: Purpose) {
        let [url, listen_url] = ["database.url", "database.listen_url"].map(|name| reader.was_given(name));
        let operator_key = ["admin.operator_key", "admin.operator_keys_file"];
        if purpose == Purpose::Serve && url && !operator_key.iter().any(|name| reader.was_given(name)) {
            reader.refuse(
                "admin.operator_key",
                "required with a database URL, or admin.operator_keys_file; create one with: waggle key generate \
                 --operator --out operator.key",
            );
        }
        if reader.was_given("database.owner_url") && !url {
            reader.refuse("database.url", "required with database.owner_url");
        }
        if listen_url && !url {
            reader.refuse("database.url", "required with database.listen_url");
        }
        Server::check_tls(reader);
        self.tokens.check(reader);
        self.limits.check_uploads(reader);
        self.audit.check_checkpoints(reader, &self.embedded.data_dir);
        let (highest, cost) = self.costs.highest();
        if let Some((small, burst)) = self.limits.smallest_burst().filter(|(_, burst)| *burst < cost) {
            reader.refuse(
                highest,
                &format!(
                    "{highest} is {cost}, but {small} is {burst}: such a request would always be refused"
                ),
            );
        }
        if self.admin.listen == Some(self.server.listen) && self.server.listen.port() != 0 {
            reader.refuse("admin.listen", "the same as server.listen; omit it to share that listener");
        }
    }
}
