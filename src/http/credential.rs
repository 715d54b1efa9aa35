//! Credentials: read from the headers, distinguished by kind, checked as far as possible without a look-up, then verified at
//! the expense of the client's address. `Waggle-Key-Expires` announces the expiry of a key.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::operator_keys::OperatorKeys;
use crate::identity::Identity;
use crate::identity::grant::{Grant, PresentedCredential};
use crate::model::caller::{CredentialKind, Recognition};
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::{KeyId, TenantId};
use crate::model::key::{KeyKind, SecretKey};
use crate::quota::limits::Limits;

const AGENT_API_KEY: HeaderName = HeaderName::from_static("x-agent-api-key");
const WAGGLE_KEY_EXPIRES: HeaderName = HeaderName::from_static("waggle-key-expires");

/// The length limit of an access token, in bytes.
const MAX_TOKEN: usize = 16 * 1024;

/// How long before its expiry a key is announced to expire.
const NOTICE: time::Duration = time::Duration::days(14);

/// The credential that a request presents.
pub enum Presented<'a> {
    /// No credential.
    None,
    /// An operator key in force, by its id.
    Operator(KeyId),
    /// A key of well-formed shape that must be looked up.
    Key(SecretKey),
    /// A text of the form of an access token; nothing of it is verified yet.
    Token(&'a str),
}

/// Verifies the credentials of requests. Clones share what they know.
#[derive(Debug, Clone)]
pub struct Authenticator {
    identity: Arc<Identity>,
    limits: Arc<Limits>,
    operators: OperatorKeys,
}

impl Authenticator {
    /// Creates an authenticator that accepts these operator keys.
    pub fn new(identity: Arc<Identity>, limits: Arc<Limits>, operators: OperatorKeys) -> Self {
        Self { identity, limits, operators }
    }

    /// Who calls, and what callers may use.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// The rate limits, to which clients and callers are charged.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Reads the credential of a request, and verifies an operator key.
    ///
    /// # Errors
    /// [`Fault::Unauthenticated`] for one that cannot be valid; [`Fault::ConflictingCredentials`] for two that differ.
    pub fn read<'a>(&self, headers: &'a HeaderMap) -> Result<Presented<'a>, Fault> {
        read(headers, &self.operators)
    }

    /// Verifies a credential, and returns what it grants now; `None` without a credential.
    ///
    /// # Errors
    /// Those of [`Limits::admit_credential`] and [`Identity::identify`].
    pub async fn verify(
        &self,
        presented: PresentedCredential<'_>,
        client: ClientAddress,
    ) -> Result<Option<Arc<Grant>>, Fault> {
        self.limits.admit_credential(client, self.identity.recognize(&presented))?;
        self.identity.identify(presented, client).await
    }

    /// Admits a client whose credential is not verified yet.
    ///
    /// # Errors
    /// [`Fault::RateLimited`] for an address with a penalty.
    pub fn admit_unverified(&self, client: ClientAddress) -> Result<(), Fault> {
        self.limits.admit_credential(client, Recognition::Unverified)
    }

    /// Charges a request to a hook to the tenant of the hook.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_delivery(&self, tenant: TenantId, cost: u32) -> Result<(), Fault> {
        self.limits.charge_delivery(tenant, cost)
    }

    /// Charges a refused credential to the address of the client.
    ///
    /// # Errors
    /// [`Fault::RateLimited`].
    pub fn charge_failure(&self, client: ClientAddress) -> Result<(), Fault> {
        self.limits.charge_failure(client)
    }
}

/// Reads the credential of a request, and verifies an operator key.
///
/// # Errors
/// [`Fault::Unauthenticated`] for one that cannot be valid; [`Fault::ConflictingCredentials`] for two that differ.
pub fn read<'a>(headers: &'a HeaderMap, operators: &OperatorKeys) -> Result<Presented<'a>, Fault> {
    let mut tokens = headers.get_all(AGENT_API_KEY).iter().map(|value| (value.to_str().ok(), true)).chain(
        headers.get_all(AUTHORIZATION).iter().map(|value| (value.to_str().ok().and_then(bearer), false)),
    );
    let Some((first, agent_only)) = tokens.next() else { return Ok(Presented::None) };
    let text = first.ok_or(Fault::Unauthenticated)?;
    // The same credential in both headers counts as a bearer token.
    let mut agent_only = agent_only;
    for (other, other_agent_only) in tokens {
        if other != Some(text) {
            return Err(Fault::ConflictingCredentials);
        }
        agent_only &= other_agent_only;
    }
    if is_token(text) {
        return if agent_only { Err(Fault::Unauthenticated) } else { Ok(Presented::Token(text)) };
    }
    let key = SecretKey::parse(text).map_err(|_| Fault::Unauthenticated)?;
    match key.kind() {
        KeyKind::Agent => Ok(Presented::Key(key)),
        _ if agent_only => Err(Fault::Unauthenticated),
        KeyKind::Owner => Ok(Presented::Key(key)),
        KeyKind::Operator => operators.verify(&key).map(Presented::Operator).ok_or(Fault::Unauthenticated),
    }
}

/// Whether it has the shape of a signed token: three parts of base64url. No key has dots.
fn is_token(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.contains('.') && text.len() <= MAX_TOKEN && text.bytes().all(plain) && text.matches('.').count() == 2
}

/// The bearer token of a request that presents nothing else.
pub fn only_bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| !headers.contains_key(AGENT_API_KEY))?;
    if values.next().is_some() { None } else { bearer(value.to_str().ok()?) }
}

/// The token of `Bearer <token>`; the scheme's case does not matter (RFC 9110, section 11.1).
pub(super) fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches(' '))
}

/// The expiry of a presented key, if it must be announced. That of a token is in the token.
pub(super) fn expiry_to_announce(
    grant: Option<&Grant>,
    now: impl FnOnce() -> OffsetDateTime,
) -> Option<OffsetDateTime> {
    let key = grant.filter(|grant| grant.credential.kind != CredentialKind::Token);
    let end = key.and_then(|grant| grant.credential.expires_at);
    end.filter(|end| *end - now() <= NOTICE)
}

/// Adds the header to an answer.
pub fn announce_expiry(end: OffsetDateTime, headers: &mut HeaderMap) {
    let end = end.format(&Rfc3339).ok();
    if let Some(end) = end.and_then(|end| HeaderValue::try_from(end).ok()) {
        headers.insert(WAGGLE_KEY_EXPIRES, end);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::{Presented, read};
    use crate::http::operator_keys::OperatorKeys;
    use crate::model::fault::Fault;
    use crate::model::key::{KeyKind, SecretKey};

    fn key(kind: KeyKind, seed: u64) -> SecretKey {
        SecretKey::generate(kind, &mut StdRng::seed_from_u64(seed))
    }

    fn ask(headers: &[(&'static str, &str)], operators: &OperatorKeys) -> &'static str {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        match read(&map, operators) {
            Ok(Presented::None) => "anonymous",
            Ok(Presented::Operator(_)) => "operator",
            Ok(Presented::Token(_)) => "token",
            Ok(Presented::Key(key)) if key.kind() == KeyKind::Agent => "agent",
            Ok(Presented::Key(_)) => "owner",
            Err(fault) => fault.name(),
        }
    }

    #[test]
    fn two_credentials_are_refused_as_such_only_if_they_differ() {
        let (agent, other) = (key(KeyKind::Agent, 1), key(KeyKind::Agent, 2));
        let refused = |values: [&str; 2]| {
            let headers = values.map(|value| (super::AGENT_API_KEY, value.parse().unwrap()));
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(name, value);
            }
            read(&map, &OperatorKeys::new([])).err()
        };
        assert_eq!(refused([agent.reveal(), other.reveal()]), Some(Fault::ConflictingCredentials));
        assert_eq!(refused([agent.reveal(), "nonsense"]), Some(Fault::ConflictingCredentials));
        assert_eq!(refused(["nonsense", "nonsense"]), Some(Fault::Unauthenticated));
        assert_eq!(refused([agent.reveal(), agent.reveal()]), None);
    }

    #[test]
    fn each_credential_is_read_where_the_contract_puts_it() {
        let (agent, other) = (key(KeyKind::Agent, 1), key(KeyKind::Agent, 2));
        let (owner, operator) = (key(KeyKind::Owner, 3), key(KeyKind::Operator, 4));
        let (agent, other) = (agent.reveal(), other.reveal());
        let bearer = |token: &str| format!("Bearer {token}");
        let operators = OperatorKeys::new([&operator]);
        let cases: &[(&[(&'static str, &str)], &str)] = &[
            (&[], "anonymous"),
            (&[("x-agent-api-key", agent)], "agent"),
            (&[("authorization", &bearer(agent))], "agent"),
            (&[("authorization", &format!("bEARER {agent}"))], "agent"),
            (&[("x-agent-api-key", agent), ("authorization", &bearer(agent))], "agent"),
            (&[("x-agent-api-key", agent), ("authorization", &bearer(other))], "unauthenticated"),
            (&[("x-agent-api-key", agent), ("x-agent-api-key", other)], "unauthenticated"),
            (&[("authorization", &bearer(agent)), ("authorization", &bearer(other))], "unauthenticated"),
            (&[("authorization", agent)], "unauthenticated"),
            (&[("authorization", "Basic dTpw")], "unauthenticated"),
            (&[("x-agent-api-key", "")], "unauthenticated"),
            (&[("x-agent-api-key", &agent[..52])], "unauthenticated"),
            (&[("authorization", "Bearer eyJhbGciOiJub25lIn0.e30.")], "token"),
            (
                &[("authorization", "Bearer eyJhbGciOiJub25lIn0.e30.x"), ("x-agent-api-key", agent)],
                "unauthenticated",
            ),
            (&[("x-agent-api-key", "eyJhbGciOiJub25lIn0.e30.")], "unauthenticated"),
            (&[("authorization", "Bearer eyJhbGciOiJub25lIn0.e30")], "unauthenticated"),
            (&[("authorization", "Bearer eyJhbGciOiJub25lIn0.e30.a.b.c")], "unauthenticated"),
            (&[("authorization", "Bearer eyJhbGciOiJub25lIn0.e3+.x")], "unauthenticated"),
            (&[("authorization", &bearer(&format!("{}.e30.x", "a".repeat(16 * 1024))))], "unauthenticated"),
            (&[("authorization", &bearer(owner.reveal()))], "owner"),
            (&[("x-agent-api-key", owner.reveal())], "unauthenticated"),
            (&[("x-agent-api-key", owner.reveal()), ("authorization", &bearer(owner.reveal()))], "owner"),
            (&[("x-agent-api-key", owner.reveal()), ("x-agent-api-key", owner.reveal())], "unauthenticated"),
            (
                &[("authorization", &bearer(operator.reveal())), ("x-agent-api-key", operator.reveal())],
                "operator",
            ),
            (&[("authorization", &bearer(operator.reveal()))], "operator"),
            (&[("authorization", &bearer(key(KeyKind::Operator, 5).reveal()))], "unauthenticated"),
            (&[("x-agent-api-key", operator.reveal())], "unauthenticated"),
        ];
        for (headers, expected) in cases {
            assert_eq!(ask(headers, &operators), *expected, "{headers:?}");
        }
    }
}
