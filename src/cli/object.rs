//! Calls of the administration API that read and write one object, or all objects of a list.

use std::collections::BTreeMap;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::admin::{Admin, Request};
use super::format::{Kind, OutputArgs};
use super::input;
use super::output::Failure;

/// The members of an object as JSON that is kept as it was sent.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct ObjectMembers(BTreeMap<String, Box<RawValue>>);

/// A file with the body of a call.
#[derive(Debug, Args)]
pub(super) struct BodyFile {
    /// A file with the body of the call, JSON or YAML; `-` is standard input. Flags replace its members.
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
}

impl BodyFile {
    /// The members of the file; none without a file.
    pub(super) fn members(self) -> Result<ObjectMembers, Failure> {
        self.file.map_or_else(|| Ok(ObjectMembers::default()), |file| input::document(&file))
    }
}

impl ObjectMembers {
    /// Sets a member.
    pub(super) fn set(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
        self.0.insert(name.to_owned(), serde_json::value::to_raw_value(value)?);
        Ok(())
    }

    /// Sets a member if there is a value.
    pub(super) fn set_some(&mut self, name: &str, value: Option<&impl Serialize>) -> Result<(), Failure> {
        value.map_or(Ok(()), |value| self.set(name, value))
    }

    /// Sets a member unless the list is empty.
    pub(super) fn set_list(&mut self, name: &str, values: &[String]) -> Result<(), Failure> {
        if values.is_empty() { Ok(()) } else { self.set(name, values) }
    }

    /// Sets the members of flags that were given.
    pub(super) fn replace_with(&mut self, flags: &impl Serialize) -> Result<(), Failure> {
        let flags: Self = serde_json::from_str(&serde_json::to_string(flags)?)?;
        self.0.extend(flags.0);
        Ok(())
    }

    /// A member as it was sent.
    pub(super) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.get(name).map(AsRef::as_ref)
    }
}

/// A text as a segment of a path or a value of a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

/// All items of a list, page by page.
pub(super) fn items(admin: &Admin, path: &str) -> Result<Vec<Box<RawValue>>, Failure> {
    let (mut all, mut cursor) = (Vec::new(), None::<String>);
    let separator = if path.contains('?') { '&' } else { '?' };
    loop {
        let cursor_of = |cursor: String| format!("&cursor={}", encoded(&cursor));
        let path = format!("{path}{separator}limit=500{}", cursor.map(cursor_of).unwrap_or_default());
        let Page { items, next_cursor } = serde_json::from_slice(&admin.call(&Request::get(path))?)?;
        all.extend(items);
        match next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(all),
        }
    }
}

/// Calls and prints.
pub(super) struct Objects<'a> {
    pub(super) admin: Admin,
    pub(super) kind: &'a Kind,
    pub(super) output: OutputArgs,
}

impl Objects<'_> {
    /// Prints a list.
    pub(super) fn list(&self, path: &str) -> Result<(), Failure> {
        self.output.list(self.kind, &items(&self.admin, path)?)
    }

    /// Prints an object.
    pub(super) fn get(&self, path: String) -> Result<(), Failure> {
        let answer: Box<RawValue> = serde_json::from_slice(&self.admin.call(&Request::get(path))?)?;
        self.output.object(self.kind, &answer)
    }

    /// Creates, changes or deletes an object, and prints what was done.
    pub(super) fn write(&self, verb: &str, id: &str, request: &Request) -> Result<(), Failure> {
        let answer = self.admin.call(request)?;
        let item: Option<Box<RawValue>> =
            if answer.is_empty() { None } else { Some(serde_json::from_slice(&answer)?) };
        self.output.done(self.kind, id, verb, item.as_deref())
    }

    /// Changes the members of an object that is written as a whole; a change in between is not overwritten.
    pub(super) fn replace(
        &self,
        path: String,
        id: &str,
        change: impl FnOnce(&mut ObjectMembers) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let found = self.admin.exchange(&Request::get(path.clone()))?;
        let mut members: ObjectMembers = serde_json::from_slice(&found.body)?;
        change(&mut members)?;
        let condition = found.tag.map(|tag| ("if-match", tag));
        let call = Request::new(Method::PUT, path).json(&members)?;
        self.write("updated", id, &Request { condition, ..call })
    }
}
