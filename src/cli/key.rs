//! `waggle key`: makes the key that a gateway has to be given.

use clap::Subcommand;

use super::output::{Failure, print};
use crate::model::key::{KeyKind, SecretKey};

#[derive(Subcommand)]
pub(super) enum Key {
    /// Print a new key; only the caller keeps it.
    Generate {
        /// For `admin.operator_key`: the key to the administration of the whole gateway.
        #[arg(long, required = true)]
        operator: bool,
    },
}

impl Key {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let Self::Generate { operator: _ } = self;
        let key = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
        print(&format!("{}\n", key.reveal()))
    }
}
