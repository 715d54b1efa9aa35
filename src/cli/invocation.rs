//! What a command is run with: the environment, its flags, and the context of its gateway.

use std::path::PathBuf;

use super::output::Failure;
use crate::config::{self, Environment, Flags, Loaded, Purpose};

/// The environment and the flags of a command.
pub(super) struct Invocation<'a> {
    pub(super) environment: &'a Environment,
    pub(super) flags: Flags,
    /// The context whose gateway is called.
    pub(super) context: Option<String>,
    /// The file with the certificates that the gateway's certificate is verified by.
    pub(super) cacert: Option<PathBuf>,
}

impl Invocation<'_> {
    /// Loads and validates the settings.
    pub(super) fn load(&self, purpose: Purpose) -> Result<Loaded, Failure> {
        Ok(config::load(self.environment, &self.flags, purpose)?)
    }
}
