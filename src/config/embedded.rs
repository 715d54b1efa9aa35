//! `[embedded]`: the private database of a gateway that was given none.

use std::path::PathBuf;

use super::{reader::Reader, text::Text};

/// The private database of a gateway that was given none.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// Where the PostgreSQL programs are; `None`: they are looked for.
    pub bin_dir: Option<PathBuf>,
    /// Where the database and the operator key lie.
    pub data_dir: PathBuf,
}

impl Embedded {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            bin_dir: reader.optional("embedded.bin_dir", &FOLDER, None),
            data_dir: reader.value("embedded.data_dir", &FOLDER, PathBuf::from("./waggle-data")),
        }
    }
}

const FOLDER: Text<PathBuf> = Text { parse: folder, show: |path| path.display().to_string() };

fn folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("is not a path".to_owned()) } else { Ok(text.into()) }
}
