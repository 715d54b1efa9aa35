//! The layers of a command's settings.

use super::output::Failure;
use crate::config::{self, Environment, Flags, Loaded, Purpose};

/// The environment and the flags of a command.
pub(super) struct Sources<'a> {
    pub(super) environment: &'a Environment,
    pub(super) flags: Flags,
}

impl Sources<'_> {
    /// Loads and validates the settings.
    pub(super) fn load(&self, purpose: Purpose) -> Result<Loaded, Failure> {
        Ok(config::load(self.environment, &self.flags, purpose)?)
    }
}
