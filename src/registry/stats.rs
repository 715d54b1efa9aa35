//! What the registry holds in memory, and what it has asked for, in numbers.

use std::sync::atomic::Ordering;

use super::Registry;

/// Numbers of one moment. Those of caches may lag behind by what they have yet to sort out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryStats {
    /// Agents' registries in memory.
    pub agents: u64,
    /// Tenants' keys and agents in memory.
    pub tenants: u64,
    /// Sessions in memory.
    pub sessions: u64,
    /// Keys of which it is remembered whose they are, or that they are nobody's.
    pub keys: u64,
    /// Bytes of contents in memory.
    pub content_bytes: u64,
    /// Bytes of compiled templates and prompts in memory.
    pub compiled_bytes: u64,
    /// How many more templates may be rendered at once now.
    pub free_renders: usize,
    /// How often the database was asked whose a key is.
    pub key_look_ups: u64,
    /// Keys that will expire within two weeks; `None` until they were counted.
    pub expiring_keys: Option<u64>,
}

impl Registry {
    /// What there is now.
    pub fn stats(&self) -> RegistryStats {
        RegistryStats {
            agents: self.agents.len() as u64,
            tenants: self.tenants.len() as u64,
            sessions: self.sessions.len() as u64,
            keys: (self.key_tenants.len() + self.unknown_keys.len()) as u64,
            content_bytes: self.contents.weighted_size(),
            compiled_bytes: self.compilations.bytes(),
            free_renders: self.renderer.free(),
            key_look_ups: self.store.key_lookups(),
            expiring_keys: self.expiring_keys.load(Ordering::Relaxed).try_into().ok(),
        }
    }
}
