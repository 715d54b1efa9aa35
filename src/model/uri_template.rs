//! The URI template of resources: RFC 6570 up to level 3, matched as well as expanded.

mod class;
mod distinct;
mod error;
mod expand;
mod layout;
mod matching;
mod overlap;
mod scan;
mod separator;
mod syntax;
#[cfg(test)]
mod tests;
mod value;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Serialize, Serializer};

pub use self::distinct::{Conflict, Distinct};
pub use self::error::{ExpandError, UriTemplateError, ValueError};
use self::layout::Layout;
pub use self::overlap::Specificity;
use super::uri::{encode_non_ascii, is_bidi_formatting};

/// Most bytes a template may have.
pub const MAX_TEMPLATE_BYTES: usize = 512;

/// A URI template of RFC 6570 up to level 3, kept as given and compared byte for byte.
///
/// The RFC says how a template expands; what matches it is settled here: **a URI matches if some values
/// [expand](UriTemplate::expand) to it, however it is percent-encoded, and no template is accepted where two could.**
/// So what expands matches back to the same values, and there is nothing to guess or to try again.
///
/// # What is a template
///
/// The RFC's grammar without modifiers (`{a:3}`, `{a*}`), of at most [`MAX_TEMPLATE_BYTES`] bytes; no variable
/// twice. Literal text has the characters of a URI (others outside of ASCII are percent-encoded first, as RFC 6570
/// writes them in what expands), begins with a scheme up to its colon (so no template matches
/// everything), and with each variable set to `1` the result is an absolute URI without a path segment `..`.
///
/// These could be read in two ways and are refused:
/// - two values side by side, `{a}{b}`, or a value after a parameter, `{?a}{b}`;
/// - two values with only letters, digits or `%` octets between them, `{a}to{b}`, or only what is written beside
///   them as well: what parameters are, `{?a}&b={c}`, and text before these, `{a}-{b}-c{?d}`;
/// - beside `{+a}`: only `-`, `.`, `_` or `~` as well, `{+a}.{b}`;
/// - two of `{+a}`; lists as `{+a,b}` and `{#a,b}`; `{+a}` right before `{&b}` or `{;b}`;
/// - anything after `{#a}`.
///
/// # What matches
///
/// Literal text and names match byte for byte. A value is the text up to the separator after it, and in full:
///
/// | where | the value may hold |
/// |---|---|
/// | `{a}` `{.a}` `{/a}` `{;a}` `{?a}` `{&a}` | letters, digits, `-._~!$&'()*+,;=:@`, octets as `%41` |
/// | `{+a}` | also `/?#[]`, but no `?` before `{?b}`, no `#` in a template with `{#b}` |
/// | `{#a}` | also `/?[]` |
///
/// But none holds raw the character that separates it from its neighbour, be it before or after it: `{a}-{b}`
/// matches `1-2` and `1%2D2-3`, and not `1-2-3`. That character is, of the literal between the two, the first of
/// `/?#[]`, or else of the other reserved ones, or else of `-._~` (after `{+a}` the last one); in parameters it is
/// what stands before each name. With the `{+a}` of a template nothing is held back but as above: `{+a}/{b}`
/// reads `x/y/z` as `x/y` and `z`, since `b` holds no `/`. Nor does literal text hold anything back at the end of
/// the template or of its path: `{a}.md` and `{a}.md{?b}` match `x.y.md`.
///
/// Values of `{a}`, `{+a}`, `{.a}` and `{/a}` must be there and not be empty, as the RFC writes an empty and a
/// missing one alike. Parameters (`{;a}`, `{?a}`, `{&a}`) and `{#a}` may be left out, and are then left out of the
/// result. The parameters of one expression may come in any order; others, or one twice, do not match. A
/// parameter without `=` is empty.
///
/// Values are percent-decoded once. There is no match where the result is no UTF-8, holds a control character,
/// has a segment `..` between `/` or `\`, or holds a `/` outside `{+a}` and `{#a}`; nor where the URI's path has a
/// segment `..`, however encoded.
///
/// Matching takes time linear in the URI and the template (times the logarithm of the number of parameters).
#[derive(Clone)]
pub struct UriTemplate(Arc<Inner>);

struct Inner {
    text: String,
    layout: Layout,
}

/// A template whose literal text is that of a URI: characters outside of ASCII percent-encoded. Expressions stay as they
/// are.
fn encoded_literals(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let pieces = text.split_inclusive('}').map(|piece| {
        let (literal, expression) = piece.split_at(piece.find('{').unwrap_or(piece.len()));
        encode_non_ascii(literal) + expression
    });
    Cow::Owned(pieces.collect())
}

impl UriTemplate {
    /// Parses a template and refuses what [could be read in two ways](UriTemplate#what-is-a-template).
    pub fn parse(text: &str) -> Result<Self, UriTemplateError> {
        if text.len() > MAX_TEMPLATE_BYTES {
            return Err(UriTemplateError::TooLong);
        }
        if let Some(character) = text.chars().find(|character| is_bidi_formatting(*character)) {
            return Err(UriTemplateError::Character(character));
        }
        let text = encoded_literals(text);
        if text.len() > MAX_TEMPLATE_BYTES {
            return Err(UriTemplateError::TooLong);
        }
        let layout = Layout::new(syntax::parts(&text)?)?;
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

    /// The literal text before the first expression: what every URI that matches begins with.
    pub fn literal_prefix(&self) -> &str {
        &self.0.layout.head
    }

    /// The variables' names, in order.
    pub fn variables(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.layout.names.iter().map(String::as_str)
    }

    /// The values with which this template expands to `uri`, with their names, in the order of the variables;
    /// what is left out of the URI is left out here. `None` where it [does not match](UriTemplate#what-matches).
    ///
    /// `uri` need not have been checked: what is no URI may match `{+a}`, and nothing worse happens.
    pub fn matches(&self, uri: &str) -> Option<Vec<(&str, String)>> {
        let values = self.0.layout.read(uri)?;
        Some(self.variables().zip(values).filter_map(|(name, value)| Some((name, value?))).collect())
    }

    /// The absolute URI of these values, by name: RFC 6570, section 3, with `None` for a variable that is undefined.
    ///
    /// It departs from the RFC where that could not be read back: in a value, a character that [separates it
    /// from its neighbour](UriTemplate#what-matches) and every `%` are percent-encoded. (So are `[` and `]`,
    /// which would make no URI.) What no value may be is an error.
    pub fn expand<'v>(&self, values: impl Fn(&str) -> Option<&'v str>) -> Result<String, ExpandError> {
        self.0.layout.expand(&values)
    }

    /// How specific the template is: of several that match, the one with the greatest goes first.
    pub fn specificity(&self) -> Specificity {
        self.0.layout.specificity()
    }

    /// Whether the two are equally specific and some URI may match both, so that none could go first.
    ///
    /// It looks at which characters may stand where, not at which values they decode to or at which parameters
    /// come how often: it may say yes where the only such texts match neither, and never no where one matches
    /// both. Takes time in the product of both lengths at the worst; [`Distinct`] bounds it for many.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let mut distinct = Distinct::default();
        distinct.trust(self);
        distinct.add(other).is_err()
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

impl Serialize for UriTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
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
