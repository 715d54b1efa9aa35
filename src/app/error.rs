//! Why the gateway does not start.

use embedded_postgres::EmbeddedError;

use crate::audit::AuditError;
use crate::identity::tokens::FetchError;
use crate::model::audit::signature::SigningKeyError;
use crate::model::key::KeyError;
use crate::model::system::RandomError;
use crate::server::ServerError;
use crate::sources::secrets::KeyFileError;
use crate::store::{DatabaseLocation, DatabaseUrlError, StoreError};

/// Why the gateway does not start, or a command on its database fails.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A database failed, with its address.
    #[error("{0}: {1}")]
    Database(DatabaseLocation, #[source] StoreError),
    /// The audit log cannot be started.
    #[error("audit log: {0}")]
    Audit(#[from] AuditError),
    /// The embedded database does not start.
    #[error("{0}{hint}", hint = embedded_hint(.0))]
    Embedded(#[from] EmbeddedError),
    /// A database URL is malformed.
    #[error("{0} is not a PostgreSQL URL: {1}")]
    Url(&'static str, #[source] DatabaseUrlError),
    /// The keys of access token issuers cannot be fetched.
    #[error(transparent)]
    Tokens(#[from] FetchError),
    /// The client that exports traces cannot be made.
    #[error("traces cannot be exported: {0}")]
    Traces(#[source] reqwest::Error),
    /// The listeners cannot be opened.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A file of the data directory cannot be read or written.
    #[error("{0}: {1}")]
    File(String, #[source] std::io::Error),
    /// Files or directories of the settings cannot be used, a line each.
    #[error("{0}")]
    Files(String),
    /// The content of a key file is not a key.
    #[error("{0} holds no key: it {1}")]
    Key(String, KeyError),
    /// A file holds no signing key of the audit log.
    #[error("{0} holds no signing key: {1}")]
    SigningKey(String, SigningKeyError),
    /// The secrets of connections cannot be decrypted.
    #[error(transparent)]
    Secrets(#[from] KeyFileError),
    /// No file is configured for the signing key of the audit log.
    #[error("audit.signing_key_file is not set; with a database URL it is required for signing")]
    NoSigningKeyFile,
    /// There is no embedded database.
    #[error(
        "there is no embedded database in {0}; set its data directory with --data-dir, or database.url for another database"
    )]
    NoDatabase(String),
    /// The database is not the embedded one.
    #[error(
        "database.url is set, and only the embedded database is backed up and restored here; copy that database with \
         pg_dump --format=custom and pg_restore, and the files of operator keys, audit.signing_key_file and \
         sources.key_file with it"
    )]
    ExternalDatabase,
    /// A backup would be restored over something.
    #[error("{0} is not empty; a backup is restored into an empty data directory, named with --data-dir")]
    NotEmpty(String),
    /// A backup would be written over something.
    #[error("{0} exists already; a backup is written to a new folder")]
    Exists(String),
    /// The database does not answer.
    #[error(
        "the copy of the database has not grown for {0} s; see whether the database answers, or raise --stall-seconds"
    )]
    Stalled(u64),
    /// A folder is not a backup.
    #[error("{0} is not a backup that this version can restore: {1}")]
    NotABackup(String, String),
    /// The schema is of another version.
    #[error(
        "the database schema is not that of this version: {0}; update it with `waggle migrate`, or start the gateway"
    )]
    Schema(#[source] StoreError),
    /// A line of a file of operator keys is not an operator key.
    #[error("{0}:{1}: not an operator key: it {2}; an operator key begins with wag_")]
    OperatorKeys(String, usize, KeyError),
    /// A file of operator keys is too long.
    #[error("{0} is longer than {1} bytes; expected one operator key per line")]
    LongFile(String, u64),
    /// A file of operator keys holds none.
    #[error("{0} holds no operator key; add one with: waggle key generate --operator >> {0}")]
    NoOperatorKeys(String),
    /// The system provides no randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The demo agent cannot be registered.
    #[error("the demo agent could not be registered: {0}")]
    Demo(String),
    /// No operator key is configured.
    #[error(
        "admin.operator_key or admin.operator_keys_file is required with a database URL; generate a key with \
         `waggle key generate --operator --out operator.key`"
    )]
    NoOperatorKey,
    /// Signal handlers cannot be installed.
    #[error("cannot handle signals: {0}")]
    Signals(#[source] std::io::Error),
    /// A signal interrupted the command.
    #[error("interrupted before completion; run it again")]
    Interrupted,
}

/// Which settings help with an error of the embedded database, continuing its message.
fn embedded_hint(error: &EmbeddedError) -> &'static str {
    match error {
        EmbeddedError::NotInstalled => {
            "\n\nor set WAGGLE_EMBEDDED__BIN_DIR to the directory of its programs `postgres` and `initdb`, or \
             WAGGLE_DATABASE__URL to a database of your own"
        }
        EmbeddedError::NotABinDir(_) => {
            "; set embedded.bin_dir to the directory of these programs (on Debian /usr/lib/postgresql/15/bin), or \
             unset it to search for them"
        }
        EmbeddedError::VersionMismatch { .. } => {
            "; WAGGLE_EMBEDDED__BIN_DIR is the directory of the programs to use"
        }
        EmbeddedError::InUse { .. } => {
            "; stop that gateway, or choose another data directory with --data-dir"
        }
        EmbeddedError::NotACluster(_) => " with --data-dir",
        _ => "",
    }
}
