//! `[limits]`: what one request, one resource and one agent may hold.

use std::time::Duration;

use super::{
    number::{Count, Size, Time},
    reader::Reader,
};
use crate::model::limits::{Rate, UseLimits};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

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
    /// Of how many refused requests the body is read at once, for the id that the answer names.
    pub refused_bodies: usize,
    /// How many bytes of all request bodies are held at once; those above are answered `503`.
    pub upload_bytes: usize,
    /// How many of them may be one tenant's: at most a quarter.
    pub upload_bytes_per_tenant: usize,
    /// How many of them may be one key's.
    pub upload_bytes_per_key: usize,
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
    /// What strangers to a public agent may use of its quotas and its tenant's, in percent and in addition to them.
    pub strangers_percent: u16,
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
        let body_bytes = reader.value("limits.body_bytes", &Size(KIB..=64 * MIB), 4 * MIB);
        let content_bytes = reader.value("limits.content_bytes", &Size(KIB..=256 * MIB), 16 * MIB);
        let manifest_bytes = reader.value("limits.manifest_bytes", &Size(KIB..=1024 * MIB), 64 * MIB);
        let largest = manifest_bytes.max(body_bytes).max(as_json(content_bytes)).max(64 * MIB);
        Self {
            body_bytes,
            content_bytes,
            manifest_bytes,
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
            refused_bodies: reader.value("limits.refused_bodies", &Count(0..=100_000), 128),
            upload_bytes: reader.value("limits.upload_bytes", &Size(KIB..=1024 * GIB), 4 * largest),
            upload_bytes_per_tenant: reader.value(
                "limits.upload_bytes_per_tenant",
                &Size(KIB..=256 * GIB),
                largest,
            ),
            upload_bytes_per_key: reader.value(
                "limits.upload_bytes_per_key",
                &Size(KIB..=256 * GIB),
                largest,
            ),
            streams_per_key: reader.value("limits.streams_per_key", &Count(1..=1_000_000), 100),
            streams: reader.value("limits.streams", &Count(1..=1_000_000), 10_000),
            key: rate(reader, "limits.key_per_second", "limits.key_burst"),
            agent: rate(reader, "limits.agent_per_second", "limits.agent_burst"),
            tenant: rate(reader, "limits.tenant_per_second", "limits.tenant_burst"),
            address: rate(reader, "limits.address_per_second", "limits.address_burst"),
            strangers_percent: reader.value(
                "limits.strangers_percent",
                &Count(0..=UseLimits::MOST_STRANGERS_PERCENT),
                100,
            ),
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
    /// Refuses bounds of bodies that contradict each other: a tenant has at most a quarter of all, and what one request
    /// may send fits in what one key and one tenant may have.
    pub(super) fn check_uploads(&self, reader: &mut Reader) {
        if self.upload_bytes_per_tenant > self.upload_bytes / 4 {
            reader.refuse("limits.upload_bytes_per_tenant", "is more than a quarter of limits.upload_bytes");
        }
        let bounds = [
            ("limits.upload_bytes_per_key", self.upload_bytes_per_key),
            ("limits.upload_bytes_per_tenant", self.upload_bytes_per_tenant),
        ];
        let bodies = [
            ("limits.manifest_bytes", self.manifest_bytes),
            ("limits.content_bytes as JSON", as_json(self.content_bytes)),
            ("limits.body_bytes", self.body_bytes),
        ];
        for (bound, most) in bounds {
            if let Some((name, _)) = bodies.into_iter().find(|(_, bytes)| *bytes > most) {
                reader.refuse(bound, &format!("is less than {name}: such a body would be refused for ever"));
            }
        }
    }

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

/// The longest JSON that contents of so many bytes are sent in.
fn as_json(content_bytes: usize) -> usize {
    2 * content_bytes + MIB
}

fn rate(reader: &mut Reader, per_second: &'static str, burst: &'static str) -> Option<Rate> {
    let per_second = reader.value(per_second, &Count(0..=Rate::MOST), 200);
    Rate::new(per_second, reader.value(burst, &Count(1..=Rate::MOST), 400))
}
