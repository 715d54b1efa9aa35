//! The kinds of sources, and what a process provides for them.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::egress::Resolve;
use crate::error::SettingsError;
use crate::file;
use crate::git::{self, Git};
use crate::http;
use crate::s3::{self, S3};
use crate::settings::read_settings;
use crate::source::Source;
use crate::sql::{self, Sql};

/// What a connection connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An HTTP API.
    Http,
    /// A directory of this machine.
    File,
    /// A bucket of an object store.
    S3,
    /// A git repository.
    Git,
    /// A database, by statements.
    Sql,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Http, Self::File, Self::S3, Self::Git, Self::Sql];

    /// The name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::File => "file",
            Self::S3 => "s3",
            Self::Git => "git",
            Self::Sql => "sql",
        }
    }
}

/// What the process allows and provides.
pub struct SourceContext {
    /// The directories below which a connection may name files; none by default.
    pub file_roots: Vec<PathBuf>,
    /// Files and directories that no connection reaches, such as those of keys and of the process's own data.
    pub denied_paths: Vec<PathBuf>,
    /// The directory of clones.
    pub cache_dir: PathBuf,
    /// The maximum number of bytes of all clones together.
    pub cache_bytes: u64,
    /// The host, the port and the name of the process's own database, which no connection reaches.
    pub own_database: Option<(String, u16, String)>,
    /// Resolves names.
    pub resolver: Arc<dyn Resolve>,
}

/// Checks the names and the types of settings, without the process that would use them. [`connect`] checks their values too.
///
/// # Errors
/// Names the first member that is refused.
pub fn check_settings(kind: Kind, settings: &Value) -> Result<(), SettingsError> {
    match kind {
        Kind::File => read_settings::<file::Settings>(settings).map(drop),
        Kind::Http => read_settings::<http::SettingsForm>(settings).map(drop),
        Kind::Git => read_settings::<git::Settings>(settings).map(drop),
        Kind::S3 => read_settings::<s3::Settings>(settings).map(drop),
        Kind::Sql => read_settings::<sql::Settings>(settings).map(drop),
    }
}

/// Validates settings and secrets, and builds the source. Opens no connection.
///
/// # Errors
/// Names the first member that is refused. The message contains no secret.
pub fn connect(
    kind: Kind,
    settings: &Value,
    secrets: &Map<String, Value>,
    context: &Arc<SourceContext>,
) -> Result<Arc<dyn Source>, SettingsError> {
    match kind {
        Kind::File => Ok(Arc::new(file::connect(settings, secrets, context)?)),
        Kind::Http => Ok(Arc::new(http::connect(settings, secrets, context)?)),
        Kind::Git => Ok(Arc::new(Git::new(settings, secrets, context)?)),
        Kind::S3 => Ok(Arc::new(S3::new(settings, secrets, context)?)),
        Kind::Sql => Ok(Arc::new(Sql::new(settings, secrets, context)?)),
    }
}
