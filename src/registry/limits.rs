//! The bounds within which the registry works.

use std::time::Duration;

use super::render::RendererLimits;
use crate::model::limits::Rate;

/// Every bound has a setting; `config/waggle.toml` says what each is for.
#[derive(Debug, Clone)]
pub struct RegistryLimits {
    /// For how long memory is answered from while the database is away.
    pub stale: Duration,
    /// Agents held whole in memory.
    pub cached_agents: usize,
    /// Tenants whose access is held in memory.
    pub cached_tenants: usize,
    /// Sessions held in memory.
    pub cached_sessions: usize,
    /// Keys that are remembered as not existing.
    pub cached_keys: usize,
    /// Access tokens remembered with what they grant.
    pub cached_tokens: u64,
    /// Bytes of contents held in memory.
    pub cached_content_bytes: u64,
    /// Bytes of compiled templates and prompts held in memory.
    pub cached_compiled_bytes: u64,
    /// Look-ups a second of keys that are not known to be issued; past it they are answered `unavailable`.
    pub unknown_keys_per_second: u32,
    /// Loads from the database at once.
    pub concurrent_fills: usize,
    /// Writes at once, over all agents: at most half of the pool.
    pub concurrent_writes: usize,
    /// Writes that wait for one scope.
    pub write_queue: usize,
    /// How long a write waits for its turn.
    pub write_wait: Duration,
    /// How long a write may take once it is its turn.
    pub write_deadline: Duration,
    /// How long a load may take.
    pub load_deadline: Duration,
    /// Agents of one tenant.
    pub agents_per_tenant: u32,
    /// Slugs that stay with one tenant because agents of it had them.
    pub retired_slugs_per_tenant: u32,
    /// The rate of a key for which nothing is set.
    pub key_rate: Option<Rate>,
    /// Resources of one agent.
    pub resources_per_agent: usize,
    /// Resource templates of one agent.
    pub templates_per_agent: usize,
    /// Prompts of one agent.
    pub prompts_per_agent: usize,
    /// Bytes of the registered resources that one prompt may embed in an answer, together.
    pub embedded_bytes: usize,
    /// How long a session lasts that nobody uses.
    pub session_idle: Duration,
    /// Resources that one session is subscribed to.
    pub subscriptions_per_session: usize,
    /// Sessions of one principal, or of one address without a credential, with one agent.
    pub sessions_per_principal: u32,
    /// How long changes are kept.
    pub retain_changes: Duration,
    /// Renders at once and what each may take.
    pub rendering: RendererLimits,
    /// Definitions on a page of a list.
    pub page_size: usize,
}
