//! Why a gateway does not run.

use embedded_postgres::EmbeddedError;

use crate::audit::AuditError;
use crate::identity::tokens::FetchError;
use crate::model::audit::signature::SigningKeyError;
use crate::model::key::KeyError;
use crate::model::sources::RandomError;
use crate::server::ServerError;
use crate::store::{DatabaseLocation, DatabaseUrlError, StoreError};

/// Why the gateway cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The database does not do.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A database does not do.
    #[error("{0}: {1}")]
    Database(DatabaseLocation, #[source] StoreError),
    /// The audit log cannot be begun.
    #[error("the audit log: {0}")]
    Audit(#[from] AuditError),
    /// The embedded database does not start.
    #[error("{0}{hint}", hint = embedded_hint(.0))]
    Embedded(#[from] EmbeddedError),
    /// A database URL has not the form of one.
    #[error("{0} is not a PostgreSQL URL: {1}")]
    Url(&'static str, #[source] DatabaseUrlError),
    /// Issuers of access tokens cannot be asked for their keys.
    #[error(transparent)]
    Tokens(#[from] FetchError),
    /// The listeners cannot be opened.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A file of the data directory cannot be read or written.
    #[error("{0}: {1}")]
    File(String, #[source] std::io::Error),
    /// What stands in the file of a key is none.
    #[error("{0} holds no key: it {1}")]
    Key(String, KeyError),
    /// A file holds no key that signs the audit log.
    #[error("{0} holds no signing key: {1}")]
    SigningKey(String, SigningKeyError),
    /// No file is configured for the key that signs the audit log.
    #[error("audit.signing_key_file is not set: with a database URL nothing is signed without it")]
    NoSigningKeyFile,
    /// The embedded database was never created.
    #[error(
        "there is no embedded database in {0}; give its data directory, or database.url for another database"
    )]
    NoDatabase(String),
    /// The schema is not one that this program reads.
    #[error(
        "the schema of the database is not that of this version: {0}; `waggle migrate`, or a start, brings it up to date"
    )]
    Schema(#[source] StoreError),
    /// A line of a file of operator keys is none.
    #[error("{0}:{1}: this line is no operator key: it {2}; an operator key begins with wag_")]
    OperatorKeys(String, usize, KeyError),
    /// A file of operator keys is too long.
    #[error("{0} is longer than {1} bytes; a file of operator keys has one a line")]
    LongFile(String, u64),
    /// A file of operator keys has none.
    #[error("{0} holds no operator key; add one with: waggle key generate --operator >> {0}")]
    NoOperatorKeys(String),
    /// The machine gives no randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The demo agent cannot be registered.
    #[error("the demo agent could not be registered: {0}")]
    Demo(String),
    /// The operator's key is missing.
    #[error(
        "admin.operator_key or admin.operator_keys_file is required with a database URL; `waggle key generate \
         --operator --out operator.key` makes one"
    )]
    NoOperatorKey,
    /// The system lets nobody hear signals.
    #[error("the signals that tell the gateway to stop cannot be heard: {0}")]
    Signals(#[source] std::io::Error),
    /// A signal came before the work was done.
    #[error("told to stop before it was done; run it again")]
    ToldToStop,
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
