//! The sources of secrets in arguments: as an argument itself, other users of the machine could see a secret.

use super::output::Failure;
use crate::config::Environment;

/// Where a secret is.
pub(super) enum SecretSource<'a> {
    /// The value of an environment variable (`env:VARIABLE`).
    Variable(&'a str),
    /// A file (`file:PATH`).
    File(&'a str),
}

impl<'a> SecretSource<'a> {
    /// Parses the source that a flag names; `expected` says what may be given.
    pub(super) fn parse(
        source: &'a str,
        environment: &'a Environment,
        (flag, expected): (&str, &str),
    ) -> Result<Self, Failure> {
        let wrong = |text: &str| Failure::Usage(format!("{flag}: {text}"));
        match source.split_once(':') {
            Some(("env", variable)) => {
                let missing = || wrong(&format!("the environment variable {variable} is not set"));
                environment.secret(variable).map(Self::Variable).ok_or_else(missing)
            }
            Some(("file", file)) => Ok(Self::File(file)),
            _ => Err(wrong(&format!("expected {expected} itself"))),
        }
    }
}
