//! `[admin]`: the administration surface and the operator keys to it.

use std::{net::SocketAddr, path::PathBuf};

use super::{embedded::PATH, reader::Reader, server::ADDRESS, text::SecretList};
use crate::model::key::{KeyError, KeyKind, SecretKey};

/// The administration surface and the operator keys to it. Without `Debug`, as every secret is.
#[derive(Clone)]
pub struct Admin {
    /// The keys to everything, several while one is being replaced. Empty, and without a file, only on the embedded
    /// database, which makes one.
    pub operator_keys: Vec<SecretKey>,
    /// A file with more of them, one a line, read again at `SIGHUP`.
    pub operator_keys_file: Option<PathBuf>,
    /// The address of the administration surface; `None`: the gateway's own.
    pub listen: Option<SocketAddr>,
}

impl Admin {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            operator_keys: reader
                .optional("admin.operator_key", &SecretList(operator_key), None)
                .unwrap_or_default(),
            operator_keys_file: reader.optional("admin.operator_keys_file", &PATH, None),
            listen: reader.optional("admin.listen", &ADDRESS, None),
        }
    }
}

fn operator_key(text: &str) -> Result<SecretKey, String> {
    let advice = "make one with: waggle key generate --operator";
    match SecretKey::parse(text) {
        Ok(key) if key.kind() == KeyKind::Operator => Ok(key),
        Ok(_) | Err(KeyError::Prefix) => {
            Err(format!("does not begin with wag_, as operator keys do; {advice}"))
        }
        Err(error) => Err(format!("{error}; {advice}")),
    }
}
