//! `[embedded]`: the private database of a gateway that was given none.

use std::{ffi::OsString, path::PathBuf};

use super::{environment::Environment, reader::Reader, text::Text};

/// The private database of a gateway that was given none.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// Where the PostgreSQL programs are; `None`: they are looked for.
    pub bin_dir: Option<PathBuf>,
    /// Where the database and the operator key lie.
    pub data_dir: PathBuf,
    /// `PATH`, where the programs are looked for last.
    pub path: Option<OsString>,
    /// `XDG_RUNTIME_DIR`, where the user's sockets are.
    pub runtime_dir: Option<PathBuf>,
}

impl Embedded {
    pub(super) fn read(reader: &mut Reader, environment: &Environment) -> Self {
        Self {
            bin_dir: reader.optional("embedded.bin_dir", &PATH, None),
            data_dir: reader.value("embedded.data_dir", &PATH, PathBuf::from("./waggle-data")),
            path: environment.of_the_system("PATH"),
            runtime_dir: environment.of_the_system("XDG_RUNTIME_DIR").map(PathBuf::from),
        }
    }
}

pub(super) const PATH: Text<PathBuf> = Text { parse: path, show: |path| path.display().to_string() };

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("is not a path".to_owned()) } else { Ok(text.into()) }
}
