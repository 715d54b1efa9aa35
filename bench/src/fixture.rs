//! What every server serves: one document of 1 KiB, and a catalogue of a hundred definitions.

/// The agent, and so the path, under which the document is read.
pub(crate) const READER: &str = "bench-read";
/// The agent under which the catalogue is listed.
pub(crate) const LISTER: &str = "bench-list";
/// The document's URI.
pub(crate) const DOCUMENT_URI: &str = "bench://documents/guide";
/// How many definitions the catalogue holds.
pub(crate) const CATALOGUE_LEN: usize = 100;
/// How many bytes of text the document holds.
pub(crate) const DOCUMENT_BYTES: usize = 1024;

const MIME_TYPE: &str = "text/markdown";

/// A resource as a server is given it: its definition and its text.
pub(crate) struct Resource {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) mime_type: &'static str,
    pub(crate) text: String,
}

/// What is registered under an agent of this bench.
pub(crate) fn resources_of(agent: &str) -> Vec<Resource> {
    if agent == LISTER { catalogue() } else { vec![document()] }
}

fn document() -> Resource {
    let line = "A guide has lines, and \"quotes\", so that JSON has something to escape.\n";
    let mut text = line.repeat(DOCUMENT_BYTES.div_ceil(line.len()));
    text.truncate(DOCUMENT_BYTES);
    Resource {
        uri: DOCUMENT_URI.to_owned(),
        name: "guide".to_owned(),
        description: "The document that is read over and over.".to_owned(),
        mime_type: MIME_TYPE,
        text,
    }
}

fn catalogue() -> Vec<Resource> {
    (0..CATALOGUE_LEN)
        .map(|number| Resource {
            uri: format!("bench://catalogue/chapter-{number:03}"),
            name: format!("chapter-{number:03}"),
            description: format!("Chapter {number} of a catalogue that is long enough to be listed."),
            mime_type: MIME_TYPE,
            text: format!("# Chapter {number}\n"),
        })
        .collect()
}
