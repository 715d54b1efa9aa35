//! Reads of content that comes from a connection.

use bytes::Bytes;
use content_source::{FetchError, Kind, Location};
use futures_util::FutureExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Catalog;
use super::read::SourceUse;
use super::snapshot::view::Answering;
use crate::identity::grant::Caller;
use crate::model::call::{Content, Contents};
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::ids::{AgentRef, ConnectionId, ResourceUri, Slug, TenantId};
use crate::model::place::SourcePlace;
use crate::model::resource::{Definition, PartKind, parse_mime};
use crate::model::scope::Revision;
use crate::sources::{ContentError, ContentRequest, Outside};

/// What is percent-encoded in a segment of a URI.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Formats that are recognized by their first bytes.
const SIGNATURES: [(&[u8], &str); 8] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"ID3", "audio/mpeg"),
];

/// The definition whose content comes from a connection.
#[derive(Debug)]
pub(super) struct Sourced<'a> {
    definition: &'a Definition,
    revision: Revision,
    source: &'a SourcePlace,
    /// The values of the variables of a template.
    values: &'a [(String, String)],
    /// Whether the revision is that of a change of the content, so that what was found is stored.
    is_touched: bool,
}

impl Answering {
    /// The id of the connection that the content comes from.
    pub fn connection(&self) -> Option<&Slug> {
        self.source().map(SourcePlace::connection)
    }

    /// The contents of a URI, of what was fetched for it.
    ///
    /// # Errors
    /// [`Fault::SourceFailed`] for names that no URI can have.
    pub fn contents(&self, uri: &ResourceUri, outside: &Outside) -> Result<Contents, Fault> {
        let sourced = self.sourced().ok_or_else(|| Fault::ResourceNotFound(uri.clone()))?;
        sourced.contents(uri, outside)
    }

    pub(super) fn sourced(&self) -> Option<Sourced<'_>> {
        let (source, revision) = (self.source()?, self.revision());
        let (definition, values, is_touched) = match self {
            Self::Registered(resource, is_touched) | Self::Mounted(resource, _, is_touched) => {
                (&resource.definition, &[][..], *is_touched)
            }
            Self::Rendered(found, is_touched) => (&found.template.definition, &found.values[..], *is_touched),
        };
        Some(Sourced { definition, revision, source, values, is_touched })
    }
}

impl Sourced<'_> {
    /// The connection.
    pub(super) fn connection(&self) -> Option<ConnectionId> {
        self.source.uid()
    }

    /// What is read for an agent; `None` for values of variables that no content has.
    pub(super) fn wanted(&self, agent: AgentRef, payer: Payer) -> Option<ContentRequest> {
        let Self { revision, source, values, .. } = self;
        Some(ContentRequest {
            payer,
            tenant: agent.tenant,
            agent: agent.uid,
            revision: *revision,
            connection: source.uid()?,
            location: source.located(values)?,
            ttl: source.ttl(),
            stale: source.stale(),
            found: None,
        })
    }
}

impl Catalog {
    /// Checks that a tenant may use the connection of a place, and that it has such places. A database prepares a statement.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], which holds nothing of the connection.
    pub(super) async fn check_source(&self, tenant: TenantId, source: &SourcePlace) -> Result<(), Fault> {
        self.check_source_as(tenant, source, |location| location).await.map(drop)
    }

    /// As [`check_source`](Self::check_source), for what is fetched as `located`; returns the kind of the connection.
    ///
    /// # Errors
    /// Those of [`check_source`](Self::check_source).
    pub(super) async fn check_source_as(
        &self,
        tenant: TenantId,
        source: &SourcePlace,
        located: fn(Location) -> Location,
    ) -> Result<Kind, Fault> {
        let id = source.connection();
        let named = self.fetcher.connections().named(tenant, &[id.to_string()]).await;
        let named = named.map_err(|fault| fault.within("source.connection"))?;
        let address =
            named.get(id).ok_or_else(|| Fault::unknown_connection("source.connection", id.as_str()))?;
        let checked = source.place().check_kind(address.kind);
        checked.map_err(|error| Fault::invalid_params(format!("source.{error}")))?;
        // Those of other kinds are never checked before they are fetched.
        let statement = source.locate(&[]).filter(|_| address.kind == Kind::Sql).map(located);
        let Some(statement) = statement else { return Ok(address.kind) };
        let problem = match self.fetcher.check(tenant, address.uid, &statement).await {
            Ok(()) => return Ok(address.kind),
            Err(ContentError::NotFound) => "statement: the connection has no statement of this name",
            Err(ContentError::Fault(Fault::SourceFailed(FetchError::NotAllowed))) => {
                "statement is not allowed; name one of the connection's as @name"
            }
            Err(ContentError::Fault(Fault::SourceFailed(FetchError::BadContent))) => {
                "format does not suit the columns of the statement; blob takes one column of bytes or text"
            }
            Err(ContentError::Fault(Fault::SourceFailed(_) | Fault::SourceTimeout)) => {
                "statement: the database does not accept it; check its names and types against the database"
            }
            Err(ContentError::Fault(fault)) => return Err(fault),
        };
        Err(Fault::invalid_params(format!("source.{problem}")))
    }

    /// The content of a URI from its connection, from memory if possible; `None` if its definition names none.
    ///
    /// # Errors
    /// [`Fault::ResourceNotFound`] if the source has no such content; [`Fault::SourceTimeout`], [`Fault::SourceFailed`].
    pub async fn fetch(
        &self,
        caller: &Caller,
        uri: &ResourceUri,
        answering: &Answering,
        source_use: &dyn SourceUse,
    ) -> Result<Option<Outside>, Fault> {
        let Some(sourced) = answering.sourced() else { return Ok(None) };
        let not_found = || Fault::ResourceNotFound(uri.clone());
        source_use.takes_from(sourced.source.connection());
        let agent = caller.agent_ref();
        let mut wanted = sourced.wanted(agent, caller.payer()).ok_or_else(not_found)?;
        wanted.found = sourced.is_touched.then(|| answering.variant(uri));
        self.outside(wanted, source_use).await.map(Some).map_err(|error| match error {
            ContentError::NotFound => not_found(),
            ContentError::Fault(fault) => fault,
        })
    }

    /// What is wanted, from memory if possible.
    pub(super) async fn outside(
        &self,
        wanted: ContentRequest,
        source_use: &dyn SourceUse,
    ) -> Result<Outside, ContentError> {
        match self.fetcher.fresh(&wanted) {
            Some(fresh) => Ok(fresh),
            // Boxed: the future of content in memory is small to move.
            None => self.fetcher.read(wanted, || source_use.before_wait()).boxed().await,
        }
    }
}

impl Sourced<'_> {
    /// The contents of a URI, of what was fetched for it.
    fn contents(&self, uri: &ResourceUri, outside: &Outside) -> Result<Contents, Fault> {
        let Self { definition, revision, source, values, .. } = self;
        let location = source.locate(values).ok_or_else(|| Fault::ResourceNotFound(uri.clone()))?;
        let part = |content: &content_source::Content| {
            // The type of a directory is not that of the files in it, which have names.
            let own = definition.mime_type.as_deref().filter(|_| content.name.is_none());
            let stated =
                own.or_else(|| content.mime_type.as_deref().filter(|mime| parse_mime(mime).is_some()));
            let name = content.name.as_deref().unwrap_or_else(|| file_name(&location));
            let mime_type = stated.map_or_else(|| guessed(name, &content.bytes), str::to_owned);
            let kind = PartKind::of(Some(&mime_type), &content.bytes);
            let uri = content.name.as_deref().map(|name| below(uri, name)).transpose()?;
            let bytes = content.bytes.clone();
            Ok::<_, Fault>(Content { uri, mime_type: Some(mime_type), kind, bytes, meta: None })
        };
        let parts = outside.contents.iter().map(part).collect::<Result<_, _>>()?;
        let mime_type = definition.mime_type.clone();
        let fresh_for = Some(outside.left);
        Ok(Contents { uri: uri.clone(), mime_type, parts, revision: *revision, fresh_for })
    }
}

/// The last segment of a path.
fn file_name(location: &Location) -> &str {
    match location {
        Location::Path { path, .. } => path.segments.last().map_or("", |segment| segment.as_str()),
        Location::Statement { .. } => "",
    }
}

/// The URI of a file in a directory.
fn below(directory: &ResourceUri, name: &str) -> Result<ResourceUri, Fault> {
    let base = directory.as_str().strip_suffix('/').unwrap_or(directory.as_str());
    let uri = format!("{base}/{}", utf8_percent_encode(name, SEGMENT));
    ResourceUri::parse(&uri).map_err(|_| Fault::SourceFailed(FetchError::BadContent))
}

/// The MIME type by the first bytes, else by the name.
fn guessed(name: &str, bytes: &Bytes) -> String {
    let signed = SIGNATURES.iter().find(|(signature, _)| bytes.starts_with(signature));
    let by_name = || skill::mime_type(name, PartKind::of(None, bytes) == PartKind::Text);
    signed.map_or_else(by_name, |(_, mime)| mime).to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;

    use super::Sourced;
    use crate::model::ids::ResourceUri;
    use crate::model::place::{SourcePlace, SourceText};
    use crate::model::resource::Definition;
    use crate::model::scope::Revision;
    use crate::sources::{FetchId, Outside};

    /// The MIME type of a content with this name, of a source that says `of_source`, and with the definition's.
    fn mime_type(path: &str, name: Option<&str>, defined: Option<&str>, of_source: Option<&str>) -> String {
        let text = serde_json::json!({"connection": "c", "path": path});
        let source = SourcePlace::new(serde_json::from_value::<SourceText>(text).unwrap()).unwrap();
        let definition = Definition {
            name: "n".to_owned(),
            title: None,
            description: None,
            mime_type: defined.map(str::to_owned),
            annotations: None,
            icons: None,
            meta: None,
        };
        let (definition, source) = (&definition, &source);
        let sourced = Sourced { definition, revision: Revision(1), source, values: &[], is_touched: false };
        let [name, mime_type] = [name, of_source].map(|text| text.map(str::to_owned));
        let content =
            content_source::Content { name, mime_type, modified: None, bytes: Bytes::from_static(b"text") };
        let outside = Outside { id: FetchId(1), contents: Arc::new([content]), left: Duration::ZERO };
        let contents = sourced.contents(&ResourceUri::parse("x:y").unwrap(), &outside).unwrap();
        contents.parts[0].mime_type.clone().unwrap()
    }

    #[test]
    fn mime_type_is_the_definitions_then_the_sources_then_guessed() {
        for path in ["a.md", "a.md/", ""] {
            assert_eq!(mime_type(path, None, Some("x/own"), Some("x/source")), "x/own", "{path}");
            assert_eq!(mime_type(path, None, None, Some("x/source")), "x/source", "{path}");
        }
        assert_eq!(mime_type("a.md", None, None, None), "text/markdown");
        // Of a directory, the type of the definition is not that of its files.
        assert_eq!(mime_type("a/", Some("b.md"), Some("x/own"), Some("x/source")), "x/source");
        assert_eq!(mime_type("a/", Some("b.md"), Some("x/own"), None), "text/markdown");
    }
}
