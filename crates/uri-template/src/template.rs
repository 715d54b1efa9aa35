//! The URI template: parsed, matched, expanded, ordered by its text.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::error::{ExpandError, UriTemplateError};
use crate::iri::{encode_literals, is_bidi_formatting};
use crate::layout::Layout;
use crate::limits::MAX_TEMPLATE_BYTES;
use crate::overlap::{Pattern, Specificity};
use crate::syntax::{self, Operator, Part};
use crate::value::Allowed;

/// A URI template of RFC 6570 up to level 3, kept as given and compared byte for byte.
///
/// The RFC defines how a template expands. Matching is defined here: **a URI matches if some values
/// [expand](UriTemplate::expand) to it, however it is percent-encoded, and no template is accepted where two
/// assignments of values could.** What expands therefore matches back to the same values, and matching needs no
/// heuristics and no backtracking.
///
/// # Accepted templates
///
/// The RFC's grammar without modifiers (`{a:3}`, `{a*}`), at most [`MAX_TEMPLATE_BYTES`] bytes, no variable twice.
/// Literal text has the characters of a URI (characters outside of ASCII are percent-encoded first, as RFC 6570 writes
/// them in an expansion), begins with a scheme up to its colon (so no template matches everything), and with each
/// variable set to `1` the expansion is an absolute URI without a path segment `..`.
///
/// These are ambiguous and are refused:
/// - two adjacent values, `{a}{b}`, or a value after a parameter, `{?a}{b}`;
/// - two values with only letters, digits or `%` octets between them, `{a}to{b}`, or only text that the neighboring
///   expression writes as well: that of parameters, `{?a}&b={c}`, and text before these, `{a}-{b}-c{?d}`;
/// - next to `{+a}`: also only `-`, `.`, `_` or `~`, `{+a}.{b}`;
/// - two of `{+a}`; lists as `{+a,b}` and `{#a,b}`; `{+a}` right before `{&b}` or `{;b}`;
/// - anything after `{#a}`.
///
/// # Matching
///
/// Literal text and names match byte for byte. A value is the text up to the next separator, which must match in full:
///
/// | expression | the value may contain |
/// |---|---|
/// | `{a}` `{.a}` `{/a}` `{;a}` `{?a}` `{&a}` | letters, digits, `-._~!$&'()*+,;=:@`, octets as `%41` |
/// | `{+a}` | also `/?#[]`, but no `?` before `{?b}`, no `#` in a template with `{#b}` |
/// | `{#a}` | also `/?[]` |
///
/// No value contains the character that separates it from the value before or after it, unless percent-encoded:
/// `{a}-{b}` matches `1-2` and `1%2D2-3`, and not `1-2-3`. That character is, of the literal between the two, the first
/// of `/?#[]`, otherwise of the other reserved ones, otherwise of `-._~` (after `{+a}` the last one); in parameters it
/// is the character before each name. The value of `{+a}` excludes nothing else: `{+a}/{b}` reads `x/y/z` as `x/y` and
/// `z`, since `b` contains no `/`. Literal text excludes nothing at the end of the template or of its path: `{a}.md`
/// and `{a}.md{?b}` match `x.y.md`.
///
/// Values of `{a}`, `{+a}`, `{.a}` and `{/a}` are required and not empty, since the RFC expands an empty and a missing
/// one to the same text. Parameters (`{;a}`, `{?a}`, `{&a}`) and `{#a}` are optional, and are absent from the result
/// if the URI omits them. The parameters of one expression may come in any order; an unknown or repeated one does
/// not match. A parameter without `=` is empty.
///
/// Values are percent-decoded once. There is no match if the result is not UTF-8, contains a control character, has
/// a segment `..` between `/` or `\`, or contains a `/` outside `{+a}` and `{#a}`; nor if the URI's path has a
/// segment `..`, however encoded.
///
/// Matching takes time linear in the URI and the template (times the logarithm of the number of parameters).
#[derive(Clone)]
pub struct UriTemplate(Arc<Inner>);

struct Inner {
    text: String,
    layout: Layout,
}

impl UriTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// If it violates the grammar, or is [ambiguous](UriTemplate#accepted-templates).
    pub fn parse(text: &str) -> Result<Self, UriTemplateError> {
        if text.len() > MAX_TEMPLATE_BYTES {
            return Err(UriTemplateError::TooLong);
        }
        if let Some(character) = text.chars().find(|character| is_bidi_formatting(*character)) {
            return Err(UriTemplateError::Character(character));
        }
        let text = encode_literals(text);
        if text.len() > MAX_TEMPLATE_BYTES {
            return Err(UriTemplateError::TooLong);
        }
        let layout = Layout::build(syntax::parts(&text)?)?;
        match layout.expand(&|_| Some("1")) {
            Ok(_) => Ok(Self(Arc::new(Inner { text: text.into_owned(), layout }))),
            Err(ExpandError::DotDot) => Err(UriTemplateError::DotDot),
            Err(_) => Err(UriTemplateError::NotAUri),
        }
    }

    /// The text, as given.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// The literal text before the first expression: the prefix of every URI that matches.
    pub fn literal_prefix(&self) -> &str {
        &self.0.layout.head
    }

    /// The names of the variables, in order.
    pub fn variables(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.layout.names.iter().map(String::as_str)
    }

    /// Whether values of a variable may contain `/`: those of `{+a}` and `{#a}`.
    pub fn takes_slashes(&self, variable: &str) -> bool {
        let parts = syntax::parts(self.as_str()).unwrap_or_default();
        parts.iter().any(|part| match part {
            Part::Expression(Operator::Reserved | Operator::Fragment, names) => names.contains(&variable),
            Part::Expression(..) | Part::Literal(_) => false,
        })
    }

    /// The values with which this template expands to `uri`, with their names, in the order of the variables; a
    /// parameter that the URI omits is absent. `None` if the URI [does not match](UriTemplate#matching).
    ///
    /// `uri` need not be validated: an invalid URI may match `{+a}`, and has no other effect.
    pub fn matches(&self, uri: &str) -> Option<Vec<(&str, String)>> {
        self.values(uri, Allowed::Expandable)
    }

    /// As [`matches`](Self::matches), for values of any text, also those that do not expand: with control characters, `/`
    /// and segments `..`. What uses them as more than text must check them.
    pub fn matches_any_text(&self, uri: &str) -> Option<Vec<(&str, String)>> {
        self.values(uri, Allowed::AnyText)
    }

    fn values(&self, uri: &str, allowed: Allowed) -> Option<Vec<(&str, String)>> {
        let values = self.0.layout.read(uri, allowed)?;
        Some(self.variables().zip(values).filter_map(|(name, value)| Some((name, value?))).collect())
    }

    /// Expands the template with values by name: RFC 6570, section 3, with `None` for an undefined variable.
    ///
    /// Differs from the RFC if the result could not be matched back: in a value, a character that [separates it
    /// from its neighbor](UriTemplate#matching) and every `%` are percent-encoded, and so are `[` and `]`, which would
    /// make the result invalid.
    ///
    /// # Errors
    /// If a required value is missing, a value is not allowed, or the result is not an absolute URI.
    pub fn expand<'v>(&self, values: impl Fn(&str) -> Option<&'v str>) -> Result<String, ExpandError> {
        self.0.layout.expand(&values)
    }

    /// How specific the template is: of several that match a URI, the most specific takes precedence.
    pub fn specificity(&self) -> Specificity {
        self.0.layout.specificity()
    }

    pub(crate) fn pattern(&self) -> Pattern {
        self.0.layout.pattern()
    }
}

impl PartialEq for UriTemplate {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for UriTemplate {}

impl Hash for UriTemplate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for UriTemplate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UriTemplate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl std::borrow::Borrow<str> for UriTemplate {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl std::str::FromStr for UriTemplate {
    type Err = UriTemplateError;

    fn from_str(text: &str) -> Result<Self, UriTemplateError> {
        Self::parse(text)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for UriTemplate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for UriTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for UriTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
