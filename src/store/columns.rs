//! Columns shared by several kinds of definitions.

use std::sync::Arc;

use content_source::Kind;
use serde_json::value::RawValue;

use super::StoreError;
use crate::model::content::ContentHash;
use crate::model::ids::ConnectionId;
use crate::model::json::raw_text;
use crate::model::label::{Label, Labels};
use crate::model::place::{SourcePlace, SourceText};
use crate::model::resource::Definition;

pub(super) fn hash(bytes: Vec<u8>) -> Result<ContentHash, StoreError> {
    bytes.try_into().map(ContentHash).map_err(|_| StoreError::Unreadable("content hash"))
}

/// Parses JSON that is stored as it was sent.
pub(super) fn raw(json: Option<String>) -> Result<Option<Box<RawValue>>, StoreError> {
    json.map(RawValue::from_string).transpose().map_err(|_| StoreError::Unreadable("JSON"))
}

/// Parses stored labels; `None` if there are none.
pub(super) fn labels(stored: Option<&[String]>) -> Result<Labels, StoreError> {
    let texts = stored.unwrap_or_default().iter().map(String::as_str);
    Labels::parse(texts).map_err(|_| StoreError::Unreadable("labels"))
}

/// Labels as one text, since an array of arrays cannot be unnested by rows. No label has a space.
pub(super) fn joined(labels: &Labels) -> String {
    labels.iter().map(Label::as_str).collect::<Vec<_>>().join(" ")
}

/// Parses the stored place of content, after the UUID of its connection and, if it was read, the kind of the connection;
/// `None` if the content is registered.
pub(super) fn place(stored: Option<&str>) -> Result<Option<Arc<SourcePlace>>, StoreError> {
    let parse = |stored: &str| {
        let (uid, rest) = stored.split_once(' ')?;
        let (kind, json) = rest.split_at(rest.find('{')?);
        let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind.trim_end());
        let (text, uid) = (serde_json::from_str(json).ok()?, ConnectionId(uid.parse().ok()?));
        SourcePlace::of_stored(text, uid, kind).ok().map(Arc::new)
    };
    stored.map(|stored| parse(stored).ok_or(StoreError::Unreadable("source"))).transpose()
}

fn json(text: &SourceText) -> Result<String, StoreError> {
    serde_json::to_string(text).map_err(|_| StoreError::Unreadable("source"))
}

/// Places of content as one array per column: as JSON, and the ids of their connections.
#[derive(Debug, Default)]
pub(super) struct PlaceColumns<'p> {
    pub(super) texts: Vec<Option<String>>,
    pub(super) connections: Vec<Option<&'p str>>,
}

impl<'p> PlaceColumns<'p> {
    pub(super) fn of(places: impl Iterator<Item = Option<&'p Arc<SourcePlace>>>) -> Result<Self, StoreError> {
        let mut columns = Self::default();
        for place in places {
            columns.texts.push(place.map(|place| json(place.text())).transpose()?);
            columns.connections.push(place.map(|place| place.connection().as_str()));
        }
        Ok(columns)
    }
}

/// Definitions as one array per column.
#[derive(Debug, Default)]
pub(super) struct Columns<'d> {
    pub(super) names: Vec<&'d str>,
    pub(super) titles: Vec<Option<&'d str>>,
    pub(super) descriptions: Vec<Option<&'d str>>,
    pub(super) mime_types: Vec<Option<&'d str>>,
    pub(super) annotations: Vec<Option<&'d str>>,
    pub(super) icons: Vec<Option<&'d str>>,
    pub(super) metas: Vec<Option<&'d str>>,
}

impl<'d> FromIterator<&'d Definition> for Columns<'d> {
    fn from_iter<I: IntoIterator<Item = &'d Definition>>(definitions: I) -> Self {
        let mut columns = Self::default();
        for definition in definitions {
            columns.names.push(&definition.name);
            columns.titles.push(definition.title.as_deref());
            columns.descriptions.push(definition.description.as_deref());
            columns.mime_types.push(definition.mime_type.as_deref());
            columns.annotations.push(raw_text(definition.annotations.as_deref()));
            columns.icons.push(raw_text(definition.icons.as_deref()));
            columns.metas.push(raw_text(definition.meta.as_deref()));
        }
        columns
    }
}

/// Size of a definition in bytes.
pub(super) fn size(definition: &Definition) -> usize {
    let texts = [&definition.title, &definition.description, &definition.mime_type];
    let raws = [&definition.annotations, &definition.icons, &definition.meta];
    definition.name.len()
        + texts.into_iter().flatten().map(String::len).sum::<usize>()
        + raws.into_iter().flatten().map(|raw| raw.get().len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn final_slash_is_a_directory_unless_of_an_api() {
        let uid = uuid::Uuid::from_u128(7);
        let is_directory = |kind: &str, path: &str| {
            let stored = format!(r#"{uid} {kind}{{"connection":"c","path":"{path}"}}"#);
            let place = place(Some(&stored)).unwrap().unwrap();
            assert_eq!((place.uid().unwrap().0, place.text().path.as_deref()), (uid, Some(path)));
            place.is_directory()
        };
        for kind in ["file ", "s3 ", "git ", ""] {
            assert_eq!(["", "a/", "a"].map(|path| is_directory(kind, path)), [true, true, false], "{kind}");
        }
        assert_eq!(["", "a/", "a"].map(|path| is_directory("http ", path)), [false; 3]);
    }

    #[test]
    fn stored_place_that_is_now_refused_is_read() {
        let stored = format!(r#"{} {{"connection":"c","path":"a%3Ab"}}"#, uuid::Uuid::nil());
        assert!(place(Some(&stored)).is_ok());
    }
}
