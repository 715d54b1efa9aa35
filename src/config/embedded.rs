//! `[embedded]`: the private database of a gateway without a database URL.

use std::path::PathBuf;

use super::section::section;
use super::text::Text;

section! {
    /// The private database of a gateway without a database URL.
    #[derive(Clone, Debug)]
    pub struct Embedded["embedded"] {
        /// The directory of the PostgreSQL programs. Default: they are searched for.
        bin_dir: optional(PathBuf, PATH, "/usr/lib/postgresql/17/bin"),
        /// The directory of the embedded database and its operator key.
        data_dir: value(PathBuf, PATH) = PathBuf::from("./waggle-data"),
        /// `PATH`, searched last for the programs.
        path: system("PATH"),
        /// `XDG_RUNTIME_DIR`, the directory of the user's sockets.
        runtime_dir: system("XDG_RUNTIME_DIR"),
    }
}

pub(super) const PATH: Text<PathBuf> = Text { parse: path, display: |path| path.display().to_string() };

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("is not a path".to_owned()) } else { Ok(text.into()) }
}
