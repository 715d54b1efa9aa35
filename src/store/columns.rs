//! Columns shared by several kinds of definitions.

use serde_json::value::RawValue;

use super::StoreError;
use crate::model::content::ContentHash;
use crate::model::json::raw_text;
use crate::model::label::{Label, Labels};
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
