//! `[[tokens.issuers]]`: a table for each issuer of access tokens; in the environment the same as a JSON list of objects.

use serde_json::{Map, Value};

use super::{
    kind::{Kind, Shown, quote, text_of},
    layers::Raw,
    secure_url::SecureUrl,
    text::{List, Text},
};
use crate::model::algorithm::Algorithm;
use crate::model::ids::Slug;

/// Most issuers.
const MOST_ISSUERS: usize = 16;

/// An issuer whose access tokens are accepted, and what its tokens may grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIssuer {
    /// Its identifier, exactly as its tokens have it in `iss`.
    pub issuer: SecureUrl,
    /// Where its keys are; `None`: where its discovery document says.
    pub jwks_url: Option<SecureUrl>,
    /// The tenants that its tokens reach at most, whatever they claim.
    pub tenants: IssuerTenants,
    /// The tenant of all its tokens; `None`: the tenant claim says.
    pub tenant: Option<Slug>,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// The claim that lists the agents; `None`: a token reaches all agents of its tenant.
    pub agents_claim: Option<String>,
    /// The claim that lists the scopes.
    pub scopes_claim: String,
    /// The algorithms that a token may be signed by.
    pub algorithms: Vec<Algorithm>,
    /// An audience that stands for the whole gateway, besides the URLs of the gateway and its endpoints.
    pub audience: Option<String>,
}

/// The tenants that an issuer's tokens reach at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssuerTenants {
    /// All tenants.
    All,
    /// These tenants.
    Only(Vec<Slug>),
}

impl IssuerTenants {
    /// Whether tokens of the issuer may reach the tenant.
    pub fn contains(&self, tenant: &Slug) -> bool {
        match self {
            Self::All => true,
            Self::Only(tenants) => tenants.contains(tenant),
        }
    }
}

/// The list of issuers.
pub(super) struct Issuers;

impl Kind for Issuers {
    type Value = Vec<TokenIssuer>;

    fn parse(&self, raw: &Raw) -> Result<Vec<TokenIssuer>, String> {
        let tables = match raw {
            Raw::Tables(tables) => tables.clone(),
            Raw::List(items) if items.is_empty() => Vec::new(),
            Raw::List(_) => return Err(EXPECTED_TABLES.to_owned()),
            other => tables_of(&text_of(other)?)?,
        };
        if tables.len() > MOST_ISSUERS {
            return Err(format!("expected at most {MOST_ISSUERS} issuers, found {}", tables.len()));
        }
        let mut wrong = Vec::new();
        let mut issuers: Vec<TokenIssuer> = Vec::new();
        for (at, table) in tables.into_iter().enumerate() {
            let read = Members { at, table, wrong: &mut wrong }.issuer();
            let Some(issuer) = read else { continue };
            if issuers.iter().any(|known| known.issuer == issuer.issuer) {
                wrong.push(format!(
                    "issuers[{at}].issuer: named by an earlier entry; expected one entry an issuer"
                ));
            }
            issuers.push(issuer);
        }
        if wrong.is_empty() { Ok(issuers) } else { Err(wrong.join("; ")) }
    }

    fn show(&self, value: &Vec<TokenIssuer>) -> Shown {
        Shown::Tables(value.iter().map(shown).collect())
    }
}

const EXPECTED_TABLES: &str =
    "expected a table for each issuer, found text; write [[tokens.issuers]] with issuer and tenants";

/// The objects of a JSON list.
fn tables_of(text: &str) -> Result<Vec<Map<String, Value>>, String> {
    serde_json::from_str(text).map_err(|_| {
        format!(
            "{} is not a JSON list of objects, such as [{{\"issuer\":\"https://login.example.com\",\"tenants\":[\"acme\"]}}]",
            quote(text)
        )
    })
}

/// The members of one entry, taken out one by one.
struct Members<'w> {
    at: usize,
    table: Map<String, Value>,
    wrong: &'w mut Vec<String>,
}

impl Members<'_> {
    fn issuer(mut self) -> Option<TokenIssuer> {
        let issuer = self.required("issuer", &ISSUER);
        let tenants = self.required("tenants", &Tenants);
        let jwks_url = self.take("jwks_url", &JWKS_URL);
        let tenant = self.take("tenant", &TENANT);
        let tenant_claim = self.take("tenant_claim", &CLAIM).unwrap_or_else(|| "waggle_tenant".to_owned());
        let agents_claim = self.take("agents_claim", &CLAIM);
        let scopes_claim = self.take("scopes_claim", &CLAIM).unwrap_or_else(|| "scope".to_owned());
        let algorithms = self.take("algorithms", &ALGORITHMS).unwrap_or_else(|| Algorithm::ALL.to_vec());
        let audience = self.take("audience", &AUDIENCE);
        if let Some(unknown) = self.table.keys().next().cloned() {
            self.refuse(&unknown.escape_debug().to_string(), "unknown member");
        }
        if let (Some(tenant), Some(tenants)) = (&tenant, &tenants)
            && !tenants.contains(tenant)
        {
            self.refuse("tenant", "is not among tenants of the entry, so that no token would reach it");
        }
        Some(TokenIssuer {
            issuer: issuer?,
            jwks_url,
            tenants: tenants?,
            tenant,
            tenant_claim,
            agents_claim,
            scopes_claim,
            algorithms,
            audience,
        })
    }

    /// A member that an entry may leave out.
    fn take<K: Kind>(&mut self, name: &str, kind: &K) -> Option<K::Value> {
        let value = self.table.remove(name).filter(|value| !value.is_null())?;
        let read = kind.parse(&raw(value));
        read.map_err(|why| self.refuse(name, &why)).ok()
    }

    /// A member that every entry has.
    fn required<K: Kind>(&mut self, name: &str, kind: &K) -> Option<K::Value> {
        if self.table.get(name).is_none_or(Value::is_null) {
            self.refuse(name, "required in every entry");
        }
        self.take(name, kind)
    }

    fn refuse(&mut self, member: &str, why: &str) {
        self.wrong.push(format!("issuers[{}].{member}: {why}", self.at));
    }
}

/// A member as the kinds of settings read it.
fn raw(value: Value) -> Raw {
    match value {
        Value::String(text) => Raw::Text(text),
        Value::Array(items) => {
            let texts =
                items.into_iter().map(|item| if let Value::String(text) = item { Some(text) } else { None });
            texts.collect::<Option<_>>().map_or(Raw::Unfit("a list of something other than text"), Raw::List)
        }
        Value::Number(_) => Raw::Unfit("a number"),
        Value::Bool(_) => Raw::Unfit("true or false"),
        Value::Object(_) => Raw::Unfit("a table"),
        Value::Null => Raw::Unfit("null"),
    }
}

/// `"*"`, or a list of tenants.
struct Tenants;

impl Kind for Tenants {
    type Value = IssuerTenants;

    fn parse(&self, raw: &Raw) -> Result<IssuerTenants, String> {
        match raw {
            Raw::Text(text) if text == "*" => Ok(IssuerTenants::All),
            Raw::List(_) => TENANTS.parse(raw).map(IssuerTenants::Only),
            other => Err(format!("{} is neither a list of tenants nor \"*\"", quote(&text_of(other)?))),
        }
    }

    fn show(&self, value: &IssuerTenants) -> Shown {
        match value {
            IssuerTenants::All => Shown::Text("*".to_owned()),
            IssuerTenants::Only(tenants) => TENANTS.show(tenants),
        }
    }
}

const ISSUER: Text<SecureUrl> = Text { parse: SecureUrl::parse_issuer, show: SecureUrl::to_string };
const JWKS_URL: Text<SecureUrl> = Text { parse: SecureUrl::parse, show: SecureUrl::to_string };
const ALGORITHMS: List<Algorithm> = List {
    item: Text { parse: algorithm, show: Algorithm::to_string },
    never_empty: Some("refuses every token"),
};
const TENANTS: List<Slug> = List { item: TENANT, never_empty: Some("refuses every token") };
const TENANT: Text<Slug> = Text { parse: tenant, show: Slug::to_string };
const CLAIM: Text<String> = Text { parse: claim, show: String::clone };
const AUDIENCE: Text<String> = Text { parse: audience, show: String::clone };

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
    plain(text, "is not the name of a claim, or a JSON pointer such as /realm_access/roles")
}

fn audience(text: &str) -> Result<String, String> {
    plain(text, "is not an audience such as api://waggle")
}

fn plain(text: &str, otherwise: &str) -> Result<String, String> {
    let plain = (1..=256).contains(&text.len()) && !text.chars().any(char::is_control);
    if plain { Ok(text.to_owned()) } else { Err(otherwise.to_owned()) }
}

/// An entry with all its members, defaults included.
fn shown(issuer: &TokenIssuer) -> Vec<(&'static str, Shown)> {
    let text = |text: &String| Shown::Text(text.clone());
    let members = [
        ("issuer", Some(ISSUER.show(&issuer.issuer))),
        ("jwks_url", issuer.jwks_url.as_ref().map(|url| JWKS_URL.show(url))),
        ("tenants", Some(Tenants.show(&issuer.tenants))),
        ("tenant", issuer.tenant.as_ref().map(|tenant| TENANT.show(tenant))),
        ("tenant_claim", Some(text(&issuer.tenant_claim))),
        ("agents_claim", issuer.agents_claim.as_ref().map(text)),
        ("scopes_claim", Some(text(&issuer.scopes_claim))),
        ("algorithms", Some(ALGORITHMS.show(&issuer.algorithms))),
        ("audience", issuer.audience.as_ref().map(text)),
    ];
    members.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
