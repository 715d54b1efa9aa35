//! What every server serves: one document of 1 KiB, a catalogue of a hundred definitions, and what is rendered.

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

/// The agent whose document changes while streams are open.
pub(crate) const WATCHED: &str = "bench-watch";
/// The agent that has a template and a prompt.
pub(crate) const RENDERER: &str = "bench-render";
/// What the URIs of the rendered resource look like.
pub(crate) const URI_TEMPLATE: &str = "bench://chapters/{number}/text";
/// The name of the prompt.
pub(crate) const PROMPT: &str = "chapter";
/// Where a request that is to differ from all others has its number.
pub(crate) const COUNTER: &str = "00000000";

/// What [`URI_TEMPLATE`] renders; the prompt says it too.
pub(crate) fn body() -> String {
    let line = "It has lines, and \"quotes\", so that JSON has something to escape.\n";
    format!(
        "# Chapter {{{{ number }}}}\n{{% if number == '1' %}}The first.{{% endif %}}\n{}",
        line.repeat(14)
    )
}

/// What [`body`] renders to, for the servers that render otherwise.
pub(crate) fn rendered(number: &str) -> String {
    let line = "It has lines, and \"quotes\", so that JSON has something to escape.\n";
    let first = if number == "1" { "The first." } else { "" };
    format!("# Chapter {number}\n{first}\n{}", line.repeat(14))
}

pub(crate) const MIME_TYPE: &str = "text/markdown";

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
    match agent {
        LISTER => catalogue(),
        READER | WATCHED => vec![document()],
        _ => Vec::new(),
    }
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
