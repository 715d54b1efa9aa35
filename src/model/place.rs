//! Places of content outside the gateway: a connection, and where the content is within it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use content_source::{Format, Kind, Location, Place, PlaceText, SettingsError, Tree};
use serde::{Deserialize, Serialize, Serializer};
use uri_template::UriTemplate;
use utoipa::ToSchema;

use super::allocated::{behind_arc, texts};
use super::fault::{Fault, shortened};
use super::ids::{ConnectionId, Slug};

/// The maximum of `ttlMs` and `staleMs`: a day.
pub const MAX_MILLIS: u32 = 86_400_000;

/// Where content is, as it is written: either `path` or `statement`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Source)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceText {
    /// The id of a connection that the tenant may use.
    pub connection: String,
    /// A path below that of the connection, percent-encoded. In a template `{name}` stands for a variable without slashes
    /// and `{+name}` for one that may have slashes. One that is empty or ends in `/` is a directory, but for an
    /// HTTP API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The query of a URL, not percent-encoded; in a template the values may have variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub query: BTreeMap<String, String>,
    /// A branch, tag or commit, in place of the connection's.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// `@name` of a statement of the connection; or a statement, if the connection allows that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
    /// `json` (the default), `csv`, `text` or `blob`: how the rows of a statement are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub format: Option<Format>,
    /// For how many milliseconds content is answered without asking the source again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 86_400_000)]
    pub ttl_ms: Option<u32>,
    /// For how many milliseconds more it is answered while it is revalidated, or while the source fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 86_400_000)]
    pub stale_ms: Option<u32>,
}

/// Where the content of a definition is.
#[derive(Debug, Clone)]
pub struct SourcePlace {
    text: SourceText,
    connection: Slug,
    place: Place,
    /// The location without values of variables, once it is needed.
    fixed: OnceLock<Arc<Location>>,
    uid: Option<ConnectionId>,
    kind: Option<Kind>,
}

impl PartialEq for SourcePlace {
    /// As they were written. A connection cannot be replaced by another of its id while definitions name it.
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Serialize for SourcePlace {
    /// As it was written.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl SourcePlace {
    /// Validates a place. Whether its connection exists and has such places is the caller's matter.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] that names the member.
    pub fn new(text: SourceText) -> Result<Self, Fault> {
        Self::parsed(text, Place::new)
    }

    /// Parses a stored place, whose connection has this UUID, and this kind if that was read with it. Rules that became
    /// stricter since it was stored refuse it only when it is registered anew, so that an agent stays readable.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] that names the member.
    pub fn of_stored(text: SourceText, uid: ConnectionId, kind: Option<Kind>) -> Result<Self, Fault> {
        Ok(Self { kind, ..Self::parsed(text, Place::of_stored)?.stored(uid) })
    }

    fn parsed(text: SourceText, parse: fn(PlaceText) -> Result<Place, SettingsError>) -> Result<Self, Fault> {
        let connection = Slug::parse(&text.connection)
            .map_err(|_| Fault::unknown_connection("source.connection", &text.connection))?;
        for (member, millis) in [("ttlMs", text.ttl_ms), ("staleMs", text.stale_ms)] {
            if millis.is_some_and(|millis| millis > MAX_MILLIS) {
                return Err(Fault::invalid_params(format!("source.{member} must be at most {MAX_MILLIS}")));
            }
        }
        let place = parse(PlaceText {
            path: text.path.clone(),
            query: text.query.clone(),
            reference: text.reference.clone(),
            statement: text.statement.clone(),
            format: text.format,
        });
        let place = place.map_err(|error| Fault::invalid_params(format!("source.{error}")))?;
        Ok(Self { text, connection, place, fixed: OnceLock::new(), uid: None, kind: None })
    }

    /// The place of a file of a mount: `path` is its decoded path below the tree, of which `text` has the encoded one. `None`
    /// if no file has such a path.
    pub fn of_file(text: SourceText, tree: &Tree, path: &str) -> Option<Self> {
        let connection = Slug::parse(&text.connection).ok()?;
        let place = Place::of_file(tree, path)?;
        Some(Self { text, connection, place, fixed: OnceLock::new(), uid: None, kind: None })
    }

    /// The stored place, whose connection has this UUID.
    #[must_use]
    pub fn stored(self, uid: ConnectionId) -> Self {
        Self { uid: Some(uid), ..self }
    }

    /// The UUID of the connection of a stored place.
    pub fn uid(&self) -> Option<ConnectionId> {
        self.uid
    }

    /// As it was written.
    pub fn text(&self) -> &SourceText {
        &self.text
    }

    /// The id of the connection.
    pub fn connection(&self) -> &Slug {
        &self.connection
    }

    /// Whether it is a directory: by its path, except at an HTTP API, which has no directories. The path also decides where the
    /// kind of the connection is unknown.
    pub fn is_directory(&self) -> bool {
        let is_path = |path: &str| path.is_empty() || path.ends_with('/');
        self.kind != Some(Kind::Http) && self.text.path.as_deref().is_some_and(is_path)
    }

    /// The place within the connection.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// For how long content is answered without asking the source again, if the definition says so.
    pub fn ttl(&self) -> Option<Duration> {
        self.text.ttl_ms.map(|millis| Duration::from_millis(millis.into()))
    }

    /// For how much longer it is answered while it is revalidated or while the source fails.
    pub fn stale(&self) -> Duration {
        Duration::from_millis(self.text.stale_ms.unwrap_or(0).into())
    }

    /// Where the content is for these values of the variables; `None` for values that no content can have.
    pub fn locate(&self, values: &[(String, String)]) -> Option<Location> {
        self.place.resolve(values.iter().map(|(name, value)| (name.as_str(), value.as_str()))).ok()
    }

    /// As [`locate`](Self::locate). Without values, the location is resolved once.
    pub fn located(&self, values: &[(String, String)]) -> Option<Arc<Location>> {
        if !values.is_empty() {
            return self.locate(values).map(Arc::new);
        }
        if let Some(fixed) = self.fixed.get() {
            return Some(Arc::clone(fixed));
        }
        let located = Arc::new(self.locate(values)?);
        Some(Arc::clone(self.fixed.get_or_init(|| located)))
    }

    /// Whether some content can have these values of the variables.
    pub fn admits(&self, values: &[(&str, String)]) -> bool {
        self.place.admits(values.iter().map(|(name, value)| (*name, value.as_str())))
    }

    /// Checks that the variables are among those of a URI template, and that it matches what they take.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`].
    pub fn check_variables(&self, uri_template: &UriTemplate) -> Result<(), Fault> {
        for variable in self.place.variables() {
            let name = variable.name;
            if !uri_template.variables().any(|known| known == name) {
                let name = shortened(name);
                return Err(Fault::invalid_params(format!(
                    "source: {name} is not a variable of the template"
                )));
            }
            // Surprises everybody: a variable of a URI template ends at a slash unless it is reserved.
            if variable.allows_slashes && !uri_template.takes_slashes(name) {
                return Err(Fault::invalid_params(format!(
                    "uriTemplate: {{{name}}} does not match slashes, which source.path takes as {{+{name}}}; \
                     write {{+{name}}} in uriTemplate, or {{{name}}} in source.path"
                )));
            }
        }
        Ok(())
    }

    /// The memory that it takes behind an `Arc`: as written, parsed, and resolved.
    pub fn memory(&self) -> usize {
        const FORMS: usize = 3;
        let text = &self.text;
        let members = [&text.path, &text.reference, &text.statement].map(Option::as_deref);
        let query = text.query.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        let written = texts(members.into_iter().flatten()) + texts(query);
        behind_arc(size_of::<Self>()) + texts([text.connection.as_str()]) * 2 + written * FORMS
    }
}
