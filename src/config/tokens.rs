//! `[tokens]`: whose access tokens are believed, and what their claims grant.

use std::time::Duration;

use super::{
    number::{Count, Time},
    reader::Reader,
    secure_url::SecureUrl,
    text::{List, Text},
};
use crate::model::algorithm::Algorithm;
use crate::model::ids::Slug;

/// Whose access tokens are believed, and what their claims grant.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// The issuers; without any, no token is taken.
    pub issuers: Vec<SecureUrl>,
    /// Where the keys of the one issuer are; `None`: where its discovery document says.
    pub jwks_url: Option<SecureUrl>,
    /// The algorithms that a token may be signed by.
    pub algorithms: Vec<Algorithm>,
    /// By how much the clocks of an issuer and of the gateway may differ.
    pub leeway: Duration,
    /// The tenant of all tokens; `None`: the tenant claim says.
    pub tenant: Option<Slug>,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// The claim that lists the agents; `None`: a token reaches all agents of its tenant.
    pub agents_claim: Option<String>,
    /// The claim that lists the scopes.
    pub scopes_claim: String,
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
        let name = |name: &str| name.to_owned();
        Self {
            issuers: reader.value("tokens.issuers", &ISSUERS, Vec::new()),
            jwks_url: reader.optional("tokens.jwks_url", &JWKS_URL, None),
            algorithms: reader.value("tokens.algorithms", &ALGORITHMS, Algorithm::ALL.to_vec()),
            leeway: reader.value("tokens.leeway_seconds", &seconds(0..=300), Duration::from_mins(1)),
            tenant: reader.optional("tokens.tenant", &TENANT, None),
            tenant_claim: reader.value("tokens.tenant_claim", &CLAIM, name("waggle_tenant")),
            agents_claim: reader.optional("tokens.agents_claim", &CLAIM, None),
            scopes_claim: reader.value("tokens.scopes_claim", &CLAIM, name("scope")),
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
        if self.jwks_url.is_some() && self.issuers.len() != 1 {
            reader.refuse(
                "tokens.jwks_url",
                "belongs to one issuer; leave it out where there are more or none",
            );
        }
        if self.issuers.len() > MOST_ISSUERS {
            reader.refuse("tokens.issuers", "names more than 16 issuers");
        }
        if self.stale < self.refresh {
            reader.refuse("tokens.stale_seconds", "less than tokens.refresh_seconds");
        }
    }
}

const MOST_ISSUERS: usize = 16;

const ISSUERS: List<SecureUrl> =
    List { item: Text { parse: SecureUrl::parse_issuer, show: SecureUrl::to_string }, never_empty: None };
const JWKS_URL: Text<SecureUrl> = Text { parse: SecureUrl::parse, show: SecureUrl::to_string };
const ALGORITHMS: List<Algorithm> = List {
    item: Text { parse: algorithm, show: Algorithm::to_string },
    never_empty: Some("refuses every token"),
};
const TENANT: Text<Slug> = Text { parse: tenant, show: Slug::to_string };
const CLAIM: Text<String> = Text { parse: claim, show: String::clone };

fn algorithm(text: &str) -> Result<Algorithm, String> {
    Algorithm::parse(text).ok_or_else(|| {
        let names = Algorithm::ALL.map(Algorithm::as_str).join(", ");
        format!("is not one of {names}")
    })
}

fn tenant(text: &str) -> Result<Slug, String> {
    Slug::parse(text).map_err(|_| "is not the id of a tenant such as acme".to_owned())
}

fn claim(text: &str) -> Result<String, String> {
    let plain = (1..=256).contains(&text.len()) && !text.chars().any(char::is_control);
    if plain {
        Ok(text.to_owned())
    } else {
        Err("is not the name of a claim, or a JSON pointer such as /realm_access/roles".to_owned())
    }
}
