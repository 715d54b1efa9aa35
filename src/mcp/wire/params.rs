//! The parameters of a message, and their validation errors.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::members::{Members, Shape, text_of};
use crate::model::fault::Fault;

/// The member of `params._meta` that only modern requests have.
pub const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The member of `_meta` with the name and version of the client.
pub const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

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
    pub fn declare_version(&self) -> bool {
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
