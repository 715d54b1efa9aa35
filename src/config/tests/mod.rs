//! Tests of the layers together.

mod reference;
mod refusals;
mod values;

use super::*;

/// A key with a valid check sum, made for these tests.
const OPERATOR_KEY: &str = "wag_00000000000000000000000000000000000000000003NxIRP";

/// The layers of a test.
#[derive(Default)]
struct Given<'a> {
    file: &'a str,
    variables: &'a [(&'a str, &'a str)],
    flags: Flags,
}

impl Given<'_> {
    fn read(&self, purpose: Purpose) -> Result<Loaded, ConfigError> {
        let file = ConfigFile { path: "waggle.toml".to_owned(), text: self.file.to_owned() };
        let environment = self.variables.iter().copied().collect();
        read(Ok(Some(file)), &environment, &self.flags, purpose)
    }

    fn settings(&self) -> Settings {
        match self.read(Purpose::Serve) {
            Ok(loaded) => loaded.settings,
            Err(error) => panic!("refused: {error}"),
        }
    }

    fn refused(&self) -> String {
        self.read(Purpose::Serve).err().expect("accepted").to_string()
    }
}

fn file(file: &str) -> Given<'_> {
    Given { file, ..Given::default() }
}

fn variables<'a>(variables: &'a [(&'a str, &'a str)]) -> Given<'a> {
    Given { variables, ..Given::default() }
}

/// The displayed settings, without their sources.
fn shown(text: &str) -> String {
    let mut listing = file(text).read(Purpose::Serve).unwrap_or_else(|error| panic!("{error}")).listing;
    listing.0.iter_mut().for_each(|entry| entry.source = None);
    listing.to_string()
}
