//! The name and version that a client sends.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::wire::members::{Members, text_of};

/// Name and version as the client sends them: for the log and the audit log, never for decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its version.
    pub version: Cow<'a, str>,
}

impl<'a> ClientInfo<'a> {
    /// Reads an `Implementation` of the specification; `None` where it is none.
    pub fn read(raw: &'a RawValue) -> Option<Self> {
        let members = Members::read(raw.get()).ok()?;
        Some(Self { name: text_of(members.get("name")?)?, version: text_of(members.get("version")?)? })
    }
}
