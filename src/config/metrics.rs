//! `[metrics]`: access to `/metrics`, and metrics of tenants.

use secrecy::SecretString;

use super::section::section;
use super::text::Secret;
use crate::model::key::SecretKey;

section! {
    /// Access to `/metrics`, and metrics of tenants.
    #[derive(Clone, Debug)]
    pub struct Metrics["metrics"] {
        /// A bearer token that is valid for /metrics only, for a Prometheus on another machine. Default: none, so that only
        /// operator keys are accepted from there; a scraper on this machine needs no credential.
        token: optional(SecretString, Secret(token), "a-random-text"),
        /// How many tenants have metrics of their own, labelled with the tenant's UUID; the others are counted together as
        /// "other". 0 turns it off.
        tenants: count(usize, 0..=10_000) = 0,
    }
}

/// The minimum length. Guesses are limited per address.
const SHORTEST: usize = 8;
const LONGEST: usize = 1_024;

fn token(text: &str) -> Result<SecretString, String> {
    if SecretKey::parse(text).is_ok() {
        return Err("is a key of the gateway, which grants access to more than /metrics; use a random text"
            .to_owned());
    }
    let fits = (SHORTEST..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits {
        Ok(text.to_owned().into())
    } else {
        Err(format!("is not {SHORTEST} to {LONGEST} visible ASCII characters without spaces"))
    }
}
