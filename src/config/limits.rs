//! `[limits]`: bounds on requests, catalogs, rates and streams.

use super::reader::Reader;
use super::section::section;
use crate::model::limits::UseLimits;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

section! {
    /// Bounds on requests, catalogs, rates and streams.
    #[derive(Clone, Debug)]
    pub struct Limits["limits"] {
        /// The body limit of an MCP request.
        body_bytes: size(usize, 1..=64 * MIB) = 4 * MIB,
        /// The contents of one resource. Once the answers to a batch have more bytes, its further calls are refused.
        content_bytes: size(usize, 1..=256 * MIB) = 16 * MIB,
        /// How many files one skill may have.
        skill_files: count(usize, 1..=10_000) = 512,
        /// The files of one skill.
        skill_bytes: size(usize, KIB..=256 * MIB) = 16 * MIB,
        /// The manifest of one agent, as JSON.
        manifest_bytes: size(usize, KIB..=1024 * MIB) = 64 * MIB,
        /// The text, or the data, of one result of a tool. A longer text is sent in parts; a list has shorter pages.
        tool_result_bytes: size(usize, KIB..=64 * MIB) = 256 * KIB,
        /// How many agents one tenant may have.
        agents_per_tenant: count(u32, 1..=1_000_000) = 10_000,
        /// How many ids of deleted agents may stay reserved for one tenant. Above it only ids that it had can be used again;
        /// none is released.
        retired_slugs_per_tenant: count(u32, 1..=1_000_000) = 100_000,
        /// How many active keys one agent may have, and how many active owner keys one tenant. Each can be rotated also when
        /// there are so many.
        active_keys: count(u32, 1..=100_000) = 1_000,
        /// How many resources one agent may register.
        resources_per_agent: count(u32, 1..=10_000_000) = 100_000,
        /// How many resource templates one agent may register.
        templates_per_agent: count(u32, 1..=1_000) = 1_000,
        /// How many prompts one agent may register.
        prompts_per_agent: count(u32, 1..=100_000) = 10_000,
        /// How many mounts one agent may have.
        mounts_per_agent: count(u32, 1..=1_000) = 100,
        /// How many files one mount lists. Above it the first of them are listed, and all are read.
        mount_entries: count(u32, 1..=1_000_000) = 100_000,
        /// How many templates and prompts are rendered, and long contents encoded, concurrently, each on a separate thread.
        concurrent_renders: count(usize, 1..=256) = 4,
        /// How many of them may wait; further ones are answered 503. Tenants are served in turn, and the newest of the
        /// longest queue gives way to other tenants.
        waiting_renders: count(usize, 0..=100_000) = 256,
        /// How many requests may be in flight; further ones are answered 503.
        concurrent_requests: count(usize, 1..=1_000_000) = 1024,
        /// For how many refused requests the body is read concurrently, for the id that the answer carries. Further ones are
        /// answered without it. One address may have a quarter of them.
        refused_bodies: count(usize, 0..=100_000) = 128,
        /// How many bytes of request bodies are held, each from its announcement until the answer, and half as many of long
        /// answers of the administration API, until they are sent; further ones are answered 503. A body without a declared
        /// length counts as the longest permitted one. Default: four times the bound of one tenant.
        upload_bytes: size(usize, KIB..=1024 * GIB) = 4 * largest_body(body_bytes, content_bytes.max(skill_bytes), manifest_bytes),
        /// How many of them may be one tenant's: at most a quarter. Default: the longest body, and at least 64 MiB.
        upload_bytes_per_tenant: size(usize, KIB..=256 * GIB) = largest_body(body_bytes, content_bytes.max(skill_bytes), manifest_bytes),
        /// How many of them may be one key's, or one address's without a key. Default: the longest body, and at least 64 MiB.
        upload_bytes_per_key: size(usize, KIB..=256 * GIB) = largest_body(body_bytes, content_bytes.max(skill_bytes), manifest_bytes),
        /// How many streams one key may have open; further ones are answered 429.
        streams_per_key: count(usize, 1..=1_000_000) = 100,
        /// How many streams may be open on a replica; further ones are answered 503. One tenant may have three quarters of them
        /// at its agents and with its keys, and anonymous callers of its public agents half of those.
        streams: count(usize, 1..=1_000_000) = 10_000,
        /// The rate limit of one key: units per second, and burst. `[costs]` sets the cost of a request. 0 units per second
        /// disable a rate. Each replica counts separately.
        key: rate(200, 400),
        /// The rate limit of one agent.
        agent: rate(200, 400),
        /// The rate limit of one tenant.
        tenant: rate(200, 400),
        /// The rate limit of one address (an IPv6 /64 is one) without a valid credential.
        address: rate(200, 400),
        /// How much anonymous callers of a public agent, those of other tenants included, may use together where the agent or
        /// its tenant has a quota: this percentage of it, in addition to it. They do not use the quota itself.
        strangers_percent: count(u16, 0..=UseLimits::MAX_STRANGERS_PERCENT) = 100,
        /// The penalty: how long an address is refused after refused credentials exhausted its rate.
        address_penalty: seconds(0..=86_400) = 10,
        /// How many requests of one key may be in flight; further ones are answered 503.
        concurrent_per_key: count(u32, 1..=1_000_000) = 256,
        /// How many requests for one agent may be in flight; further ones are answered 503.
        concurrent_per_agent: count(u32, 1..=1_000_000) = 512,
        /// For how many keys, agents and tenants, and for how many addresses, the state of the rate limit is kept. Further
        /// ones of the same rate share one, until others have not been used for a while.
        remembered: count(usize, 1..=100_000_000) = 100_000,
    }
}

impl Limits {
    /// Reports bounds of bodies that contradict each other: a tenant has at most a quarter of the total, and the longest
    /// body fits into the bounds of one key and one tenant.
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
            ("limits.skill_bytes as JSON", as_json(self.skill_bytes)),
            ("limits.body_bytes", self.body_bytes),
        ];
        for (bound, most) in bounds {
            if let Some((name, _)) = bodies.into_iter().find(|(_, bytes)| *bytes > most) {
                reader.refuse(bound, &format!("is less than {name}: such a body would always be refused"));
            }
        }
    }

    /// The smallest burst of the enabled rates, and its setting.
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

/// The longest JSON document with contents of this size.
fn as_json(content_bytes: usize) -> usize {
    2 * content_bytes + MIB
}

/// The longest body of any request, and at least 64 MiB.
fn largest_body(body_bytes: usize, content_bytes: usize, manifest_bytes: usize) -> usize {
    manifest_bytes.max(body_bytes).max(as_json(content_bytes)).max(64 * MIB)
}
