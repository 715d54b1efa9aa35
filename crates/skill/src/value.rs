//! A JSON value whose objects keep the order of their members.

use serde::ser::{Error, Serialize, SerializeMap, Serializer};

/// A value of the frontmatter.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it is written in JSON.
    Number(String),
    /// A string.
    String(String),
    /// A list.
    List(Vec<Value>),
    /// An object, in the order of its members.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// The member of an object; `None` if there is none, or the value is no object.
    pub fn member(&self, name: &str) -> Option<&Value> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(text) => {
                let raw = serde_json::value::RawValue::from_string(text.clone());
                raw.map_err(S::Error::custom)?.serialize(serializer)
            }
            Self::String(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}
