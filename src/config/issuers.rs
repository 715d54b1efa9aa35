//! `[[tokens.issuers]]`: one table per issuer of access tokens; in the environment the same as a JSON list of objects.

use serde_json::{Map, Value};

use super::kind::{DisplayValue, Kind, quote, text_of};
use super::layers::Raw;
use super::text::{List, Text};
use super::urls::SecureUrl;
use crate::model::algorithm::Algorithm;
use crate::model::ids::Slug;

/// The maximum number of issuers.
const MAX_ISSUERS: usize = 16;

/// An issuer whose access tokens are accepted, and what they may grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIssuer {
    /// Its identifier, exactly as in the `iss` of its tokens.
    pub issuer: SecureUrl,
    /// The URL of its keys; `None`: as its discovery document says.
    pub jwks_url: Option<SecureUrl>,
    /// The tenants that its tokens may reach. A claim does not extend them.
    pub tenants: IssuerTenants,
    /// The tenant of all its tokens; `None`: as the tenant claim says.
    pub tenant: Option<Slug>,
    /// The claim with the tenant.
    pub tenant_claim: String,
    /// The claim with the list of agents; `None`: all agents of the tenant.
    pub agents_claim: Option<String>,
    /// The claim with the scopes.
    pub scopes_claim: String,
    /// The claim with the labels; `None`: no labels.
    pub labels_claim: Option<String>,
    /// The accepted signature algorithms.
    pub algorithms: Vec<Algorithm>,
    /// An audience that is valid for the whole gateway, besides the URLs of the gateway and its endpoints.
    pub audience: Option<String>,
}

/// The tenants that an issuer's tokens may reach.
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
        if tables.len() > MAX_ISSUERS {
            return Err(format!("expected at most {MAX_ISSUERS} issuers, found {}", tables.len()));
        }
        let mut wrong = Vec::new();
        let mut issuers: Vec<TokenIssuer> = Vec::new();
        for (at, table) in tables.into_iter().enumerate() {
            let read = IssuerTable { at, table, wrong: &mut wrong }.issuer();
            let Some(issuer) = read else { continue };
            if issuers.iter().any(|known| known.issuer == issuer.issuer) {
                wrong.push(format!(
                    "issuers[{at}].issuer: named by an earlier entry; expected one entry per issuer"
                ));
            }
            issuers.push(issuer);
        }
        if wrong.is_empty() { Ok(issuers) } else { Err(wrong.join("; ")) }
    }

    fn display(&self, value: &Vec<TokenIssuer>) -> DisplayValue {
        DisplayValue::Tables(value.iter().map(members).collect())
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

/// The members of one entry, removed as they are read.
struct IssuerTable<'w> {
    at: usize,
    table: Map<String, Value>,
    wrong: &'w mut Vec<String>,
}

impl IssuerTable<'_> {
    fn issuer(mut self) -> Option<TokenIssuer> {
        let issuer = self.required("issuer", &ISSUER);
        let tenants = self.required("tenants", &Tenants);
        let jwks_url = self.take("jwks_url", &JWKS_URL);
        let tenant = self.take("tenant", &TENANT);
        let tenant_claim = self.take("tenant_claim", &CLAIM).unwrap_or_else(|| "waggle_tenant".to_owned());
        let agents_claim = self.take("agents_claim", &CLAIM);
        let scopes_claim = self.take("scopes_claim", &CLAIM).unwrap_or_else(|| "scope".to_owned());
        let labels_claim = self.take("labels_claim", &CLAIM);
        let algorithms = self.take("algorithms", &ALGORITHMS).unwrap_or_else(|| Algorithm::ALL.to_vec());
        let audience = self.take("audience", &AUDIENCE);
        if let Some(unknown) = self.table.keys().next().cloned() {
            self.refuse(&unknown.escape_debug().to_string(), "unknown member");
        }
        if let (Some(tenant), Some(tenants)) = (&tenant, &tenants)
            && !tenants.contains(tenant)
        {
            self.refuse("tenant", "is not one of the entry's tenants");
        }
        Some(TokenIssuer {
            issuer: issuer?,
            jwks_url,
            tenants: tenants?,
            tenant,
            tenant_claim,
            agents_claim,
            scopes_claim,
            labels_claim,
            algorithms,
            audience,
        })
    }

    /// An optional member.
    fn take<K: Kind>(&mut self, name: &str, kind: &K) -> Option<K::Value> {
        let value = self.table.remove(name).filter(|value| !value.is_null())?;
        let read = kind.parse(&raw(value));
        read.map_err(|why| self.refuse(name, &why)).ok()
    }

    /// A required member.
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

/// A member as an unparsed value.
fn raw(value: Value) -> Raw {
    match value {
        Value::String(text) => Raw::Text(text),
        Value::Array(items) => {
            let texts =
                items.into_iter().map(|item| if let Value::String(text) = item { Some(text) } else { None });
            texts
                .collect::<Option<_>>()
                .map_or(Raw::Unsupported("a list with other items than text"), Raw::List)
        }
        Value::Number(_) => Raw::Unsupported("a number"),
        Value::Bool(_) => Raw::Unsupported("a boolean"),
        Value::Object(_) => Raw::Unsupported("a table"),
        Value::Null => Raw::Unsupported("null"),
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

    fn display(&self, value: &IssuerTenants) -> DisplayValue {
        match value {
            IssuerTenants::All => DisplayValue::Text("*".to_owned()),
            IssuerTenants::Only(tenants) => TENANTS.display(tenants),
        }
    }
}

const ISSUER: Text<SecureUrl> = Text { parse: SecureUrl::parse_issuer, display: SecureUrl::to_string };
const JWKS_URL: Text<SecureUrl> = Text { parse: SecureUrl::parse, display: SecureUrl::to_string };
const ALGORITHMS: List<Algorithm> = List {
    item: Text { parse: algorithm, display: Algorithm::to_string },
    never_empty: Some("would refuse every token"),
};
const TENANTS: List<Slug> = List { item: TENANT, never_empty: Some("would refuse every token") };
const TENANT: Text<Slug> = Text { parse: tenant, display: Slug::to_string };
const CLAIM: Text<String> = Text { parse: claim, display: String::clone };
const AUDIENCE: Text<String> = Text { parse: audience, display: String::clone };

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

/// All members of an entry, defaults included.
fn members(issuer: &TokenIssuer) -> Vec<(&'static str, DisplayValue)> {
    let text = |text: &String| DisplayValue::Text(text.clone());
    let members = [
        ("issuer", Some(ISSUER.display(&issuer.issuer))),
        ("jwks_url", issuer.jwks_url.as_ref().map(|url| JWKS_URL.display(url))),
        ("tenants", Some(Tenants.display(&issuer.tenants))),
        ("tenant", issuer.tenant.as_ref().map(|tenant| TENANT.display(tenant))),
        ("tenant_claim", Some(text(&issuer.tenant_claim))),
        ("agents_claim", issuer.agents_claim.as_ref().map(text)),
        ("scopes_claim", Some(text(&issuer.scopes_claim))),
        ("labels_claim", issuer.labels_claim.as_ref().map(text)),
        ("algorithms", Some(ALGORITHMS.display(&issuer.algorithms))),
        ("audience", issuer.audience.as_ref().map(text)),
    ];
    members.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
