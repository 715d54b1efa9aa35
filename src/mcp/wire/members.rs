//! The members of a JSON object, each name once, borrowed from the text in a single pass; and the parameters of a message, which
//! are such members.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use crate::model::fault::Fault;

/// Members kept without an allocation; messages of well-behaved clients have fewer on each level.
const INLINE: usize = 8;

/// The maximum number of stored members of one object, so that a body of many names does not take a multiple of its
/// size.
pub const MAX_MEMBERS: usize = 1_024;

/// The kind of JSON value found in the place of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// No value.
    #[default]
    Absent,
    /// An object.
    Object,
    /// An array.
    Array,
    /// Anything else, `null` included.
    Scalar,
}

/// An error in the names of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MembersError {
    /// A duplicate name.
    #[error("has a member twice")]
    Duplicate,
    /// More than [`MAX_MEMBERS`] members.
    #[error("has more than {MAX_MEMBERS} members")]
    TooMany,
}

/// The members of one object.
#[derive(Debug, Default)]
pub struct Members<'a> {
    shape: Shape,
    error: Option<MembersError>,
    inline: [Option<(&'a str, Value<'a>)>; INLINE],
    /// Names with escapes, and members beyond the inline ones. A tree, so that no choice of names makes it slow.
    spilled: BTreeMap<Cow<'a, str>, Value<'a>>,
}

/// The text of a member. `None` if it was parsed in place, or its name is duplicate.
type Value<'a> = Option<&'a RawValue>;

impl<'a> Members<'a> {
    /// Parses one JSON text. A text that is not an object is no error: see [`shape`](Self::shape).
    ///
    /// # Errors
    /// If the text is not JSON, or a scalar that cannot be represented.
    pub fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        let mut members = Self::default();
        walk(text, &mut members, &mut [])?;
        Ok(members)
    }

    /// The kind of value found.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The error in the names, if there is one.
    pub fn error(&self) -> Option<MembersError> {
        self.error
    }

    /// Whether there is a member of this name.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Whether the object is empty.
    pub fn is_empty(&self) -> bool {
        self.inline[0].is_none() && self.spilled.is_empty()
    }

    /// The value of a member, as it was sent.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.find(name).flatten()
    }

    /// The names of the members, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let inline = self.inline.iter().map_while(|slot| slot.map(|(name, _)| name));
        inline.chain(self.spilled.keys().map(Cow::as_ref))
    }

    fn find(&self, name: &str) -> Option<Value<'a>> {
        let inline = self.inline.iter().map_while(|slot| *slot).find(|(known, _)| *known == name);
        inline.map(|(_, value)| value).or_else(|| self.spilled.get(name).copied())
    }

    /// Inserts a member. A duplicate name keeps no value, since it is ambiguous.
    fn insert(&mut self, name: Cow<'a, str>, value: Value<'a>) {
        let inline = self.inline.iter_mut().map_while(Option::as_mut).find(|(known, _)| *known == name);
        if let Some(kept) = inline.map(|(_, kept)| kept).or_else(|| self.spilled.get_mut(&*name)) {
            *kept = None;
            self.error = Some(MembersError::Duplicate);
            return;
        }
        let free = self.inline.iter_mut().find(|slot| slot.is_none());
        match (name, free) {
            (Cow::Borrowed(name), Some(slot)) => *slot = Some((name, value)),
            (name, _) if self.spilled.len() < MAX_MEMBERS - INLINE => _ = self.spilled.insert(name, value),
            _ => self.error = Some(MembersError::TooMany),
        }
    }
}

/// Parses a JSON text into `own`, except the member named by the first of `nested`: it is parsed in the same pass into
/// the members beside its name, and so on inwards.
///
/// # Errors
/// If the text is not JSON, or a scalar in the place of an object cannot be represented.
pub(super) fn walk<'a>(
    text: &'a str,
    own: &mut Members<'a>,
    nested: &mut [(&'static str, &mut Members<'a>)],
) -> Result<(), serde_json::Error> {
    if pass(text, NameComparison::Read, own, nested).is_ok() {
        return Ok(());
    }
    *own = Members::default();
    for (_, members) in nested.iter_mut() {
        **members = Members::default();
    }
    pass(text, NameComparison::Sent, own, nested)
}

fn pass<'a>(
    text: &'a str,
    names: NameComparison,
    own: &mut Members<'a>,
    nested: &mut [(&'static str, &mut Members<'a>)],
) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Walk { names, own, nested }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// The text of a JSON string, borrowed if it has no escapes; `None` if it is another kind of value, or contains a lone
/// surrogate.
pub fn text_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw.get()).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// How names are compared.
#[derive(Clone, Copy)]
enum NameComparison {
    /// By their unescaped text. Parsing fails at a lone surrogate.
    Read,
    /// By their text as sent, which distinguishes lone surrogates too; slower.
    Sent,
}

impl NameComparison {
    fn next<'a, A: MapAccess<'a>>(self, map: &mut A) -> Result<Option<Cow<'a, str>>, A::Error> {
        match self {
            Self::Read => Ok(map.next_key::<Name<'a>>()?.map(|Name(name)| name)),
            Self::Sent => {
                let key = map.next_key::<&'a RawValue>()?;
                Ok(key.map(|key| text_of(key).unwrap_or(Cow::Borrowed(key.get()))))
            }
        }
    }
}

/// A name, borrowed if it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'a> Deserialize<'a> for Name<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'a> Visitor<'a> for NameVisitor {
    type Value = Name<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'a str) -> Result<Name<'a>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name<'a>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

struct Walk<'w, 'n, 'a> {
    names: NameComparison,
    own: &'w mut Members<'a>,
    nested: &'w mut [(&'static str, &'n mut Members<'a>)],
}

macro_rules! scalars {
    ($($visit:ident($type:ty))*) => {
        $(fn $visit<E: Error>(self, _: $type) -> Result<(), E> {
            self.own.shape = Shape::Scalar;
            Ok(())
        })*
    };
}

impl<'a> DeserializeSeed<'a> for Walk<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Walk<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { names, own, nested } = self;
        own.shape = Shape::Object;
        while let Some(name) = names.next(&mut map)? {
            let value = match nested.split_first_mut() {
                Some(((inner, members), deeper)) if *inner == name && !own.has(&name) => {
                    map.next_value_seed(Walk { names, own: members, nested: deeper })?;
                    None
                }
                _ => Some(map.next_value()?),
            };
            own.insert(name, value);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        self.own.shape = Shape::Array;
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    scalars! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.own.shape = Shape::Scalar;
        Ok(())
    }
}

/// The member of `params._meta` that only modern requests have.
pub const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The member of `_meta` with the capabilities of the client.
pub const META_CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The member of `_meta` with the name and version of the client.
pub const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// The member of `_meta` with the trace context of the client (SEP-414).
pub const META_TRACEPARENT: &str = "traceparent";

/// The parameters of a request or notification.
#[derive(Debug, Default)]
pub struct Params<'a> {
    pub(super) members: Members<'a>,
    pub(super) meta: Members<'a>,
}

impl<'a> Params<'a> {
    /// The members of `_meta`.
    pub fn meta(&self) -> &Members<'a> {
        &self.meta
    }

    /// Whether `_meta` names a protocol version, of any type.
    pub fn declares_version(&self) -> bool {
        self.meta.has(META_PROTOCOL_VERSION)
    }

    /// Refuses positional parameters, and a `_meta` that is not an object.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`].
    pub fn check_shape(&self) -> Result<(), Fault> {
        if self.members.shape() == Shape::Array {
            return Err(Fault::invalid_params("params must be an object"));
        }
        let has_meta = self.members.has("_meta");
        if has_meta && self.meta.shape() != Shape::Object {
            return Err(Fault::invalid_params("params._meta must be an object"));
        }
        Ok(())
    }

    /// The value of a member, of any type.
    pub fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.members.get(name)
    }

    /// An optional string.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], naming the member.
    pub fn string(&self, name: &'static str) -> Result<Option<Cow<'a, str>>, Fault> {
        match self.members.get(name) {
            None => Ok(None),
            Some(raw) => match text_of(raw) {
                None => Err(Fault::invalid_params(format!("params.{name} must be a string"))),
                text => Ok(text),
            },
        }
    }

    /// A required string.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], naming the member.
    pub fn required_string(&self, name: &'static str) -> Result<Cow<'a, str>, Fault> {
        self.string(name)?.ok_or_else(|| missing(name))
    }

    /// An optional object.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], naming the member.
    pub fn object(&self, name: &'static str) -> Result<Option<&'a RawValue>, Fault> {
        match self.members.get(name) {
            Some(raw) if !raw.get().starts_with('{') => {
                Err(Fault::invalid_params(format!("params.{name} must be an object")))
            }
            raw => Ok(raw),
        }
    }

    /// A required object.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], naming the member.
    pub fn required_object(&self, name: &'static str) -> Result<&'a RawValue, Fault> {
        self.object(name)?.ok_or_else(|| missing(name))
    }
}

fn missing(name: &str) -> Fault {
    Fault::invalid_params(format!("params.{name} is required"))
}

#[cfg(test)]
mod tests;
