//! `[admin]`: the administration API and its operator keys.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::embedded::PATH;
use super::section::section;
use super::server::ADDRESS;
use super::text::SecretList;
use crate::model::key::{KeyError, KeyKind, SecretKey};

section! {
    /// The administration API and its operator keys. Without `Debug`, as every secret is.
    #[derive(Clone)]
    pub struct Admin["admin"] {
        /// The operator key, from `waggle key generate --operator`; several, separated by commas, while one is replaced.
        /// Required with a database URL, here or in the file below; otherwise one is generated.
        operator_key: optional(Vec<SecretKey>, SecretList(operator_key), "wag_..."),
        /// A file with operator keys, one per line; empty lines and lines that begin with # are ignored. Read again on
        /// SIGHUP.
        operator_keys_file: optional(PathBuf, PATH, "/etc/waggle/operator.keys"),
        /// The address and port of the administration API. Default: those of the MCP endpoints.
        listen: optional(SocketAddr, ADDRESS, "127.0.0.1:8095"),
    }
}

impl Admin {
    /// The configured keys, without those of the file. Empty, and without a file, only on the embedded database, for
    /// which one is generated.
    pub fn operator_keys(&self) -> &[SecretKey] {
        self.operator_key.as_deref().unwrap_or_default()
    }
}

fn operator_key(text: &str) -> Result<SecretKey, String> {
    let advice = "create one with: waggle key generate --operator";
    match SecretKey::parse(text) {
        Ok(key) if key.kind() == KeyKind::Operator => Ok(key),
        Ok(_) | Err(KeyError::Prefix) => {
            Err(format!("does not begin with wag_, as operator keys do; {advice}"))
        }
        Err(error) => Err(format!("{error}; {advice}")),
    }
}
