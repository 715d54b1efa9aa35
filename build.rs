//! Compresses the files of the API browser that `admin/browser.rs` serves. Uncompressed, and with the files
//! that it does not need, they would be a third of the binary.

use std::borrow::Cow;
use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{self, Cursor};
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;
use zip::ZipArchive;

const FILES: [&str; 3] = ["swagger-ui.css", "swagger-ui-bundle.js", "swagger-ui-standalone-preset.js"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let mut archive = ZipArchive::new(Cursor::new(SWAGGER_UI_VENDORED))?;
    for name in FILES {
        let wanted = format!("/dist/{name}");
        let names: Result<Vec<_>, _> = archive.file_names().collect();
        let path = names?.into_iter().find(|path| path.ends_with(&wanted)).map(Cow::into_owned);
        let mut file = archive.by_name(&path.ok_or_else(|| format!("{name} is not in the archive"))?)?;
        let mut compressed =
            GzEncoder::new(File::create(out.join(format!("{name}.gz")))?, Compression::best());
        io::copy(&mut file, &mut compressed)?;
        compressed.finish()?;
    }
    Ok(())
}
