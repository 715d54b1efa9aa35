//! `[admin]`: the administration surface and the operator's key to it.

use std::net::SocketAddr;

use super::{reader::Reader, server::ADDRESS, text::Secret};
use crate::model::key::{KeyError, KeyKind, SecretKey};

/// The administration surface and the operator's key to it. Without `Debug`, as every secret is.
#[derive(Clone)]
pub struct Admin {
    /// The key to everything; `None` only on the embedded database, which makes one.
    pub operator_key: Option<SecretKey>,
    /// The address of the administration surface; `None`: the gateway's own.
    pub listen: Option<SocketAddr>,
}

impl Admin {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            operator_key: reader.optional("admin.operator_key", &Secret(operator_key), None),
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
