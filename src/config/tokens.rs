//! `[tokens]`: the issuers whose access tokens are accepted, and how their keys are fetched.

use super::issuers::{Issuers, TokenIssuer};
use super::reader::Reader;
use super::section::section;

section! {
    /// The issuers whose access tokens are accepted, and how their keys are fetched.
    #[derive(Clone, Debug)]
    pub struct Tokens["tokens"] {
        /// The issuers (`OpenID` providers) whose access tokens are accepted; none by default. One table each, after the
        /// settings of this section:
        ///
        /// ```toml
        /// [[tokens.issuers]]
        /// issuer = "https://login.example.com/realms/acme"   # exactly as in the `iss` of its tokens
        /// tenants = ["acme"]               # required: the tenants that its tokens may reach, or "*" for all
        /// jwks_url = "https://..."         # where its public keys are; default: as its discovery document says
        /// tenant = "acme"                  # the tenant of all its tokens; default: the one that tenant_claim names
        /// tenant_claim = "waggle_tenant"   # the claim with the tenant; a nested one is a JSON pointer, /realm/tenant
        /// agents_claim = "waggle_agents"   # the claim with the list of agents; default: all agents of the tenant
        /// scopes_claim = "scope"           # the claim with the scopes: mcp, registry, audit
        /// labels_claim = "groups"          # the claim with the labels; default: no labels
        /// algorithms = ["RS256"]           # accepted signatures; default: RS, PS, ES with 256 and 384 bits, RS512, PS512, EdDSA
        /// audience = "api://waggle"        # an `aud` valid for the whole gateway, besides the URLs of its endpoints
        /// ```
        ///
        /// In the environment `WAGGLE_TOKENS__ISSUERS` is the same as a JSON list of objects.
        issuers: value(
            Vec<TokenIssuer>,
            Issuers,
            [{ issuer = "https://login.example.com/realms/acme", tenants = ["acme"] }]
        ) = Vec::new(),
        /// The tolerated clock skew between an issuer and the gateway.
        leeway: seconds(0..=300) = 60,
        /// How often an issuer's public keys are fetched.
        refresh: seconds(1..=86_400) = 300,
        /// How long public keys remain valid while they cannot be fetched.
        stale: seconds(1..=604_800) = 86_400,
        /// The minimum interval between two fetches for unknown keys.
        unknown_key: seconds(1..=3600) = 10,
    }
}

impl Tokens {
    /// Reports settings of the section that contradict each other.
    pub(super) fn check(&self, reader: &mut Reader) {
        if self.stale < self.refresh {
            reader.refuse("tokens.stale_seconds", "is less than tokens.refresh_seconds");
        }
    }
}
