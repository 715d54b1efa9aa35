//! `waggle key`: generates operator keys.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Subcommand;

use super::output::{Failure, print};
use crate::model::key::{KeyKind, SecretKey};

#[derive(Subcommand)]
pub(super) enum Key {
    /// Generate a key and print it, or write it to a file; it is stored nowhere else.
    Generate {
        /// An operator key, for `admin.operator_key` or `admin.operator_keys_file`.
        #[arg(long, required = true)]
        operator: bool,
        /// Write the key to this new file, readable by its owner only, instead of printing it.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

impl Key {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let Self::Generate { operator: _, out } = self;
        let key = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
        let Some(file) = out else { return print(&format!("{}\n", key.reveal())) };
        let mut options = OpenOptions::new();
        // An existing file may contain a key in use.
        let created = options.write(true).create_new(true).mode(0o600).open(file);
        let written = created.and_then(|mut file| {
            writeln!(file, "{}", key.reveal())?;
            file.sync_all()
        });
        written.map_err(|error| Failure::File(file.display().to_string(), error))?;
        print(&format!("wrote the operator key {}… to {}\n", key.display(), file.display()))
    }
}
