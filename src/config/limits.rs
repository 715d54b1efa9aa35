//! `[limits]`: what one request, one resource and one agent may hold.

use std::time::Duration;

use super::{
    number::{Count, Size, Time},
    reader::Reader,
};
use crate::model::limits::Rate;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// What one request, one resource and one agent may hold.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The body of one MCP request, in bytes.
    pub body_bytes: usize,
    /// The contents of one resource, in bytes.
    pub content_bytes: usize,
    /// The manifest of one agent as JSON, in bytes.
    pub manifest_bytes: usize,
    /// How many agents one tenant may have.
    pub agents_per_tenant: u32,
    /// How many slugs may stay with one tenant because agents of it had them.
    pub retired_slugs_per_tenant: u32,
    /// How many resources one agent may register.
    pub resources_per_agent: u32,
    /// How many resource templates one agent may register.
    pub templates_per_agent: u32,
    /// How many prompts one agent may register.
    pub prompts_per_agent: u32,
    /// How many templates and prompts are rendered at once, each on a thread of its own.
    pub concurrent_renders: usize,
    /// How many more may wait to be rendered; those above are answered `503`. Tenants are served in turn, and the longest
    /// queue makes room for the others.
    pub waiting_renders: usize,
    /// How many requests are served at once; those above are answered `503`.
    pub concurrent_requests: usize,
    /// How many streams one key may have open; those above are answered `429`.
    pub streams_per_key: usize,
    /// How many streams are open at once; those above are answered `503`.
    pub streams: usize,
    /// What one key may use; `None` for no limit.
    pub key: Option<Rate>,
    /// What may be used of one agent.
    pub agent: Option<Rate>,
    /// What one tenant may use.
    pub tenant: Option<Rate>,
    /// What those may use who come from one address without a credential, or with none that holds.
    pub address: Option<Rate>,
    /// How long an address has nothing left once it has used that up with credentials that do not hold.
    pub address_penalty: Duration,
    /// How many requests of one key are served at once; those above are answered `503`.
    pub concurrent_per_key: u32,
    /// How many requests for one agent are served at once; those above are answered `503`.
    pub concurrent_per_agent: u32,
    /// How many keys, agents and tenants are remembered with what they have left, and how many addresses.
    pub remembered: usize,
}

impl Limits {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            body_bytes: reader.value("limits.body_bytes", &Size(KIB..=64 * MIB), 4 * MIB),
            content_bytes: reader.value("limits.content_bytes", &Size(KIB..=256 * MIB), 16 * MIB),
            manifest_bytes: reader.value("limits.manifest_bytes", &Size(KIB..=1024 * MIB), 64 * MIB),
            agents_per_tenant: reader.value("limits.agents_per_tenant", &Count(1..=1_000_000), 10_000),
            retired_slugs_per_tenant: reader.value(
                "limits.retired_slugs_per_tenant",
                &Count(1..=1_000_000),
                100_000,
            ),
            resources_per_agent: reader.value("limits.resources_per_agent", &Count(1..=10_000_000), 100_000),
            templates_per_agent: reader.value("limits.templates_per_agent", &Count(1..=1_000), 1_000),
            prompts_per_agent: reader.value("limits.prompts_per_agent", &Count(1..=100_000), 10_000),
            concurrent_renders: reader.value("limits.concurrent_renders", &Count(1..=256), 4),
            waiting_renders: reader.value("limits.waiting_renders", &Count(0..=100_000), 256),
            concurrent_requests: reader.value("limits.concurrent_requests", &Count(1..=1_000_000), 1024),
            streams_per_key: reader.value("limits.streams_per_key", &Count(1..=1_000_000), 100),
            streams: reader.value("limits.streams", &Count(1..=1_000_000), 10_000),
            key: rate(reader, "limits.key_per_second", "limits.key_burst"),
            agent: rate(reader, "limits.agent_per_second", "limits.agent_burst"),
            tenant: rate(reader, "limits.tenant_per_second", "limits.tenant_burst"),
            address: rate(reader, "limits.address_per_second", "limits.address_burst"),
            address_penalty: reader.value(
                "limits.address_penalty_seconds",
                &Time::seconds(0..=86_400),
                Duration::from_secs(10),
            ),
            concurrent_per_key: reader.value("limits.concurrent_per_key", &Count(1..=1_000_000), 256),
            concurrent_per_agent: reader.value("limits.concurrent_per_agent", &Count(1..=1_000_000), 512),
            remembered: reader.value("limits.remembered", &Count(1..=100_000_000), 100_000),
        }
    }
}

impl Limits {
    /// The setting with the fewest units that may be had at once, of the rates that are not turned off.
    pub(super) fn smallest_burst(&self) -> Option<(&'static str, u32)> {
        let bursts = [
            ("limits.key_burst", self.key),
            ("limits.agent_burst", self.agent),
            ("limits.tenant_burst", self.tenant),
            ("limits.address_burst", self.address),
        ];
        let on = bursts.into_iter().filter_map(|(name, rate)| Some((name, rate?.burst.get())));
        on.min_by_key(|(_, burst)| *burst)
    }
}

fn rate(reader: &mut Reader, per_second: &'static str, burst: &'static str) -> Option<Rate> {
    let per_second = reader.value(per_second, &Count(0..=Rate::MOST), 200);
    Rate::new(per_second, reader.value(burst, &Count(1..=Rate::MOST), 400))
}
