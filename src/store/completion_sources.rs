//! The places that completions of templates and prompts come from: a column of JSON beside the listed values.
//!
//! An earlier release neither reads nor replaces it, so it has the revision of its row and counts for no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::StoreError;
use super::definitions::encoded;
use crate::model::completion::CompletionValues;
use crate::model::ids::ConnectionId;
use crate::model::place::{SourcePlace, SourceText};
use crate::model::scope::Revision;

const UNREADABLE: StoreError = StoreError::Unreadable("completions");

/// The places of a definition by the names of variables or arguments.
pub(super) type SourcePlaces = BTreeMap<String, Arc<SourcePlace>>;

#[derive(Serialize, Deserialize)]
struct Stored<T> {
    revision: i64,
    /// The connection and the place of each name.
    sources: BTreeMap<String, (Uuid, T)>,
}

/// The columns of definitions that are written, as one array each.
#[derive(Debug, Default)]
pub(super) struct CompletionColumns {
    /// The places.
    pub(super) sources: Vec<Option<String>>,
    /// The connections, separated by spaces.
    pub(super) connections: Vec<Option<String>>,
}

impl CompletionColumns {
    /// The columns of definitions with these completions. Locks the connections against deletion.
    pub(super) async fn of<'c>(
        connection: &mut PgConnection,
        definitions: Vec<Vec<(&'c str, &'c CompletionValues)>>,
        revision: Revision,
    ) -> Result<Self, StoreError> {
        let mut slugs = BTreeSet::new();
        let places = definitions.into_iter().map(|completions| {
            let places = completions.into_iter().filter_map(|(name, values)| Some((name, values.source()?)));
            let places: BTreeMap<_, _> = places.collect();
            slugs.extend(places.values().map(|place| place.connection().as_str()));
            places
        });
        let places: Vec<_> = places.collect();
        let uids = locked(connection, slugs).await?;
        let mut columns = Self::default();
        for places in places {
            let uid = |place: &SourcePlace| uids.get(place.connection().as_str()).copied().ok_or(UNREADABLE);
            let sources =
                places.iter().map(|(name, place)| Ok(((*name).to_owned(), (uid(place)?, place.text()))));
            let sources: BTreeMap<_, _> = sources.collect::<Result<_, StoreError>>()?;
            let connections: BTreeSet<_> = sources.values().map(|(uid, _)| uid.to_string()).collect();
            let joined = || connections.into_iter().collect::<Vec<_>>().join(" ");
            let is_any = !sources.is_empty();
            columns.connections.push(is_any.then(joined));
            let stored = || encoded(&Stored { revision: revision.0, sources });
            columns.sources.push(is_any.then(stored).transpose()?);
        }
        Ok(columns)
    }
}

async fn locked(
    connection: &mut PgConnection,
    slugs: BTreeSet<&str>,
) -> Result<BTreeMap<String, Uuid>, StoreError> {
    if slugs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let slugs: Vec<_> = slugs.into_iter().map(str::to_owned).collect();
    let rows = sqlx::query!(
        "select slug, uid from connections where slug = any($1) order by uid for key share",
        &slugs
    );
    Ok(rows.fetch_all(connection).await?.into_iter().map(|row| (row.slug, row.uid)).collect())
}

/// Reads members that are stored as JSON, and the places after them, if these are of this revision.
pub(super) fn read<T: DeserializeOwned>(json: &str, revision: i64) -> Result<(T, SourcePlaces), StoreError> {
    let mut documents = serde_json::Deserializer::from_str(json);
    let members = T::deserialize(&mut documents).map_err(|_| UNREADABLE)?;
    if documents.end().is_ok() {
        return Ok((members, SourcePlaces::new()));
    }
    let stored = Stored::<SourceText>::deserialize(&mut documents).map_err(|_| UNREADABLE)?;
    let sources = if stored.revision == revision { stored.sources } else { BTreeMap::new() };
    let places = sources.into_iter().map(|(name, (uid, text))| {
        let place = SourcePlace::of_stored(text, ConnectionId(uid), None).map_err(|_| UNREADABLE)?;
        Ok((name, Arc::new(place)))
    });
    Ok((members, places.collect::<Result<_, StoreError>>()?))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn places_of_another_revision_do_not_count() {
        let uid = uuid::Uuid::from_u128(7);
        let json = format!(
            r#"{{"a":[],"b":["x"]}} {{"revision":3,"sources":{{"a":["{uid}",{{"connection":"c","path":"p"}}]}}}}"#
        );
        let read = |json: &str, revision| {
            let (members, places) = read::<serde_json::Value>(json, revision).unwrap();
            let place = places.get("a").map(|place| (place.uid().unwrap().0, place.text().path.clone()));
            (members, place)
        };
        let members = serde_json::json!({"a": [], "b": ["x"]});
        assert_eq!(read(&json, 3), (members.clone(), Some((uid, Some("p".to_owned())))));
        for (json, revision) in [(json.as_str(), 4), (r#"{"a":[],"b":["x"]}"#, 3)] {
            assert_eq!(read(json, revision), (members.clone(), None));
        }
    }
}
