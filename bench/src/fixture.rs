//! The content of every server: a document of 1 KiB, a catalog of a hundred definitions, a template and a prompt.

/// The agent, and so the path, of the document.
pub(crate) const READER: &str = "bench-read";
/// The agent of the catalog.
pub(crate) const LISTER: &str = "bench-list";
/// The document's URI.
pub(crate) const DOCUMENT_URI: &str = "bench://documents/guide";
/// The number of definitions in the catalog.
pub(crate) const CATALOG_LEN: usize = 100;
/// The size of the document.
pub(crate) const DOCUMENT_BYTES: usize = 1024;

/// The agent whose document changes while streams are open.
pub(crate) const WATCHED: &str = "bench-watch";
/// The agent that has a template and a prompt.
pub(crate) const RENDERER: &str = "bench-render";
/// The template of the rendered resource.
pub(crate) const URI_TEMPLATE: &str = "bench://chapters/{number}/text";
/// The name of the prompt.
pub(crate) const PROMPT: &str = "chapter";
/// The place of the number in requests that differ from each other.
pub(crate) const COUNTER: &str = "00000000";

/// The body of [`URI_TEMPLATE`], and the message of the prompt.
pub(crate) fn body() -> String {
    let line = "It has lines, and \"quotes\", so that JSON has something to escape.\n";
    format!(
        "# Chapter {{{{ number }}}}\n{{% if number == '1' %}}The first.{{% endif %}}\n{}",
        line.repeat(14)
    )
}

/// The result of rendering [`body`], for servers that have no templates.
pub(crate) fn rendered(number: &str) -> String {
    let line = "It has lines, and \"quotes\", so that JSON has something to escape.\n";
    let first = if number == "1" { "The first." } else { "" };
    format!("# Chapter {number}\n{first}\n{}", line.repeat(14))
}

pub(crate) const MIME_TYPE: &str = "text/markdown";

/// A resource to register: its definition and text.
pub(crate) struct Resource {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) mime_type: &'static str,
    pub(crate) text: String,
}

/// The resources of an agent of this benchmark.
pub(crate) fn resources_of(agent: &str) -> Vec<Resource> {
    match agent {
        LISTER => catalog(),
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
        description: "The document that is read.".to_owned(),
        mime_type: MIME_TYPE,
        text,
    }
}

fn catalog() -> Vec<Resource> {
    (0..CATALOG_LEN)
        .map(|number| Resource {
            uri: format!("bench://catalog/chapter-{number:03}"),
            name: format!("chapter-{number:03}"),
            description: format!("Chapter {number} of a catalog that is long enough to be listed."),
            mime_type: MIME_TYPE,
            text: format!("# Chapter {number}\n"),
        })
        .collect()
}
