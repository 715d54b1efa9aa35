//! The content of every server: a document of 1 KiB, a catalog of a hundred definitions, a template and a prompt.

/// The agent, and so the path, of the document.
pub(crate) const READER: &str = "bench-read";
/// The tool of this agent that reads the document.
pub(crate) const READ_TOOL: &str = "read_resource";
/// The agent of the catalog.
pub(crate) const LISTER: &str = "bench-list";
/// The agent of the document with a label, which its key has.
pub(crate) const LABELLED_READER: &str = "bench-read-labelled";
/// The agent of the catalog with a label, which its key has, and of as many definitions that are hidden.
pub(crate) const LABELLED_LISTER: &str = "bench-list-labelled";
/// The label of what the keys of both see, and the label of what is hidden.
pub(crate) const LABEL: &str = "visible";
pub(crate) const OTHER_LABEL: &str = "hidden";
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
        LISTER | LABELLED_LISTER => catalog("chapter"),
        READER | LABELLED_READER | WATCHED => vec![document()],
        _ => Vec::new(),
    }
}

/// The resources that are hidden from the key of an agent: between the ones that it sees.
pub(crate) fn hidden_of(agent: &str) -> Vec<Resource> {
    if agent == LABELLED_LISTER { catalog("chapter-hidden") } else { Vec::new() }
}

/// The label of what an agent's key sees, if it has one.
pub(crate) fn label_of(agent: &str) -> Option<&'static str> {
    [LABELLED_READER, LABELLED_LISTER].contains(&agent).then_some(LABEL)
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

fn catalog(name: &str) -> Vec<Resource> {
    (0..CATALOG_LEN)
        .map(|number| Resource {
            uri: format!("bench://catalog/{number:03}-{name}"),
            name: format!("{name}-{number:03}"),
            description: format!("Chapter {number} of a catalog that is long enough to be listed."),
            mime_type: MIME_TYPE,
            text: format!("# Chapter {number}\n"),
        })
        .collect()
}
