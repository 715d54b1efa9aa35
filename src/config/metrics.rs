//! `[metrics]`: access to `/metrics`.

use secrecy::SecretString;

use super::{reader::Reader, text::Secret};
use crate::model::key::SecretKey;

/// Access to `/metrics`.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// A bearer token that is good for `/metrics` alone; `None`: only an operator key opens it from another machine.
    pub token: Option<SecretString>,
}

impl Metrics {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self { token: reader.optional("metrics.token", &Secret(token), None) }
    }
}

/// Characters that a guess needs many attempts for, each charged to its address.
const SHORTEST: usize = 8;
const LONGEST: usize = 1_024;

fn token(text: &str) -> Result<SecretString, String> {
    if SecretKey::parse(text).is_ok() {
        return Err("is a key of the gateway, which opens more than /metrics; use a random text".to_owned());
    }
    let fits = (SHORTEST..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits {
        Ok(text.to_owned().into())
    } else {
        Err(format!("is not {SHORTEST} to {LONGEST} visible ASCII characters without spaces"))
    }
}
