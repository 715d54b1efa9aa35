//! Reads the text format of `/metrics`.

/// The value of a sample, as text; `None` if there is no such sample.
pub(crate) fn sample<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}
