//! `[tokens]`: the issuers whose access tokens are accepted, and how their keys are fetched.

use std::time::Duration;

use super::{
    issuers::{Issuers, TokenIssuer},
    number::{Count, Time},
    reader::Reader,
};

/// The issuers whose access tokens are accepted, and how their keys are fetched.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// The issuers; without any, no token is accepted.
    pub issuers: Vec<TokenIssuer>,
    /// By how much the clocks of an issuer and of the gateway may differ.
    pub leeway: Duration,
    /// How often the keys of an issuer are fetched.
    pub refresh: Duration,
    /// How long keys are believed that cannot be fetched anew.
    pub stale: Duration,
    /// The least time between two fetches because of a key that is not known.
    pub unknown_key: Duration,
    /// How many tokens are remembered with what they grant.
    pub remembered: u64,
}

impl Tokens {
    pub(super) fn read(reader: &mut Reader) -> Self {
        let seconds = Time::seconds;
        Self {
            issuers: reader.value("tokens.issuers", &Issuers, Vec::new()),
            leeway: reader.value("tokens.leeway_seconds", &seconds(0..=300), Duration::from_mins(1)),
            refresh: reader.value("tokens.refresh_seconds", &seconds(1..=86_400), Duration::from_mins(5)),
            stale: reader.value("tokens.stale_seconds", &seconds(1..=604_800), Duration::from_hours(24)),
            unknown_key: reader.value(
                "tokens.unknown_key_seconds",
                &seconds(1..=3600),
                Duration::from_secs(10),
            ),
            remembered: reader.value("tokens.remembered", &Count(1..=1_000_000), 10_000),
        }
    }

    /// What does not fit together in it, under the setting to change.
    pub(super) fn check(&self, reader: &mut Reader) {
        if self.stale < self.refresh {
            reader.refuse("tokens.stale_seconds", "less than tokens.refresh_seconds");
        }
    }
}
