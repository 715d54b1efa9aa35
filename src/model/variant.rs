//! Which content of a URI: labels may let several definitions answer one, each to other callers.

use std::fmt;

use super::ids::ResourceUri;

/// The longest text of a variant that is stored.
const MAX_BYTES: usize = 2_048;

/// A URI, and the definition that answers it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variant {
    /// The URI.
    pub uri: ResourceUri,
    /// The text of a resource template or the name of a mount; `None` for the resource of the URI.
    pub definition: Option<Box<str>>,
}

impl Variant {
    /// What a template or a mount answers a URI with.
    pub fn by(definition: &str, uri: &ResourceUri) -> Self {
        Self { uri: uri.clone(), definition: Some(definition.into()) }
    }

    /// Parses the text that [`Display`](fmt::Display) writes; `None` for another.
    pub fn parse(text: &str) -> Option<Self> {
        // A URI has no spaces.
        let (definition, uri) = match text.rsplit_once(' ') {
            Some((definition, uri)) => (Some(definition.into()), uri),
            None => (None, text),
        };
        Some(Self { uri: ResourceUri::parse(uri).ok()?, definition })
    }

    /// Whether its text is short enough to be stored.
    pub fn is_storable(&self) -> bool {
        let definition = self.definition.as_ref().map_or(0, |definition| definition.len() + 1);
        definition + self.uri.as_str().len() <= MAX_BYTES
    }
}

impl From<ResourceUri> for Variant {
    /// The resource of a URI.
    fn from(uri: ResourceUri) -> Self {
        Self { uri, definition: None }
    }
}

impl fmt::Display for Variant {
    /// The definition and a space, if it has one, and the URI.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.definition {
            Some(definition) => write!(f, "{definition} {}", self.uri),
            None => self.uri.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, Variant};
    use crate::model::ids::ResourceUri;

    #[test]
    fn variants_are_parsed_from_their_text() {
        let uri = ResourceUri::parse("test://a").unwrap();
        for variant in
            [Variant::from(uri.clone()), Variant::by("test://{x}", &uri), Variant::by("guides", &uri)]
        {
            assert_eq!(Variant::parse(&variant.to_string()), Some(variant));
        }
        assert_eq!(Variant::parse("guides no-uri"), None);
    }

    #[test]
    fn variants_with_long_texts_are_not_stored() {
        let uri = ResourceUri::parse("test://a").unwrap();
        let longest = MAX_BYTES - uri.as_str().len() - 1;
        let is_storable = |length| Variant::by(&"x".repeat(length), &uri).is_storable();
        assert_eq!((is_storable(longest), is_storable(longest + 1)), (true, false));
    }
}
