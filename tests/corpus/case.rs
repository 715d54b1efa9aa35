//! One request of the corpus.

use serde_json::Value;

/// A request, and the values of its answer that later requests use.
///
/// Paths, header values and bodies may contain variables as `<<name>>`: keys and ids from earlier answers.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) captures: Vec<(&'static str, Source)>,
}

/// The location of a variable's value in an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    /// At a JSON pointer in the body.
    Member(&'static str),
    Header(&'static str),
}

impl Case {
    pub(crate) fn new(name: impl Into<String>, method: &str, path: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            method: method.to_owned(),
            path: path.into(),
            headers: Vec::new(),
            body: Vec::new(),
            captures: Vec::new(),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(header, _)| header != name);
        self
    }

    /// Replaces a header.
    pub(crate) fn with(self, name: &str, value: impl Into<String>) -> Self {
        self.without(name).header(name, value)
    }

    pub(crate) fn raw(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.with("content-type", "application/json").raw(body.to_string())
    }

    pub(crate) fn bearer(self, variable: &str) -> Self {
        self.with("authorization", format!("Bearer <<{variable}>>"))
    }

    pub(crate) fn key(self, variable: &str) -> Self {
        self.with("x-agent-api-key", format!("<<{variable}>>"))
    }

    pub(crate) fn capture(mut self, name: &'static str, source: Source) -> Self {
        self.captures.push((name, source));
        self
    }

    /// The method, path, headers and body.
    pub(crate) fn request(&self) -> (&str, &str, &[(String, String)], &[u8]) {
        (&self.method, &self.path, &self.headers, &self.body)
    }
}
