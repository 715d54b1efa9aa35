//! The documentation in the demo: a directory that is mounted as resources of the demo agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use content_source::Kind;
use serde_json::{Map, Value};

use crate::app::DatabaseServices;
use crate::catalog::Catalog;
use crate::config::Settings;
use crate::model::agent::Agent;
use crate::model::audit::write::AuditedWrite;
use crate::model::connection::{ConnectionLimitChanges, ConnectionLimits};
use crate::model::fault::Fault;
use crate::model::ids::{ResourceUri, Slug};
use crate::model::label::Labels;
use crate::model::mount::{Ages, Mount, MountPlace, NewMount};
use crate::model::precondition::Precondition;
use crate::sources::{ConnectionChange, Connections, NewConnection, SecretChanges, TenantNames};

/// The id of the connection, and the name of the mount.
const CONNECTION: &str = "demo-docs";
const MOUNT: &str = "docs";
const URI: &str = "docs:///";
/// The page that a printed command reads.
const PAGE: &str = "concepts.md";

/// A directory of pages in Markdown.
#[derive(Debug)]
pub(in crate::app) struct Documentation(PathBuf);

impl Documentation {
    /// The directory, if there is one; the log says so if not.
    pub(in crate::app) fn find(directory: Option<&Path>) -> Option<Self> {
        let Some(directory) = directory else {
            tracing::info!("the demo agent has no documentation: waggle demo --docs DIR mounts a directory");
            return None;
        };
        match directory.canonicalize() {
            Ok(found) => Some(Self(found)),
            Err(error) => {
                tracing::warn!(directory = %directory.display(), %error, "documentation of the demo not found");
                None
            }
        }
    }

    /// Allows connections to the directory.
    pub(in crate::app) fn allow(&self, settings: &mut Settings) {
        settings.sources.file_roots.push(self.0.clone());
    }

    /// The URI of a page that is there.
    pub(super) fn page(&self) -> Option<String> {
        self.0.join(PAGE).is_file().then(|| format!("{URI}{PAGE}"))
    }

    /// Mounts the directory, unless the agent has the mount of an earlier start.
    pub(super) async fn mount(&self, services: &DatabaseServices, agent: &Agent) -> Result<(), Fault> {
        let form = |_| Fault::NotFound("slug");
        let connection = Slug::parse(CONNECTION).map_err(form)?;
        self.connect(&services.connections, connection, agent.tenant_slug.clone()).await?;
        let name = Slug::parse(MOUNT).map_err(form)?;
        if is_mounted(&services.catalog, agent, &name).await? {
            return Ok(());
        }
        let new = NewMount {
            name,
            uri: ResourceUri::parse(URI).map_err(|error| Fault::invalid_params(error.to_string()))?,
            place: MountPlace {
                connection: CONNECTION.to_owned(),
                path: String::new(),
                reference: None,
                include: vec!["**/*.md".to_owned()],
                exclude: Vec::new(),
            },
            ages: Ages::default(),
            annotations: None,
            labels: Labels::default(),
        };
        let new = new.check()?;
        services
            .catalog
            .put::<Mount>(agent, new, Precondition::default(), AuditedWrite::UNAUDITED)
            .await
            .map(drop)
    }

    /// Creates the connection to the directory, or changes that of an earlier start.
    async fn connect(&self, connections: &Arc<Connections>, slug: Slug, tenant: Slug) -> Result<(), Fault> {
        let root = Value::String(self.0.display().to_string());
        let settings: Map<_, _> = [("root".to_owned(), root)].into_iter().collect();
        let new = NewConnection {
            slug: slug.clone(),
            kind: Kind::File,
            tenants: TenantNames::Only(vec![tenant]),
            settings: settings.clone(),
            secrets: SecretChanges::default(),
            limits: ConnectionLimits::default(),
            enabled: true,
        };
        match connections.create(new, AuditedWrite::UNAUDITED).await {
            Err(Fault::AlreadyExists(_)) => {}
            created => return created.map(drop),
        }
        let change = ConnectionChange {
            tenants: None,
            settings,
            secrets: SecretChanges::default(),
            limits: ConnectionLimitChanges::default(),
            enabled: None,
        };
        let condition = Precondition::default();
        connections.update(slug, change, condition, AuditedWrite::UNAUDITED).await.map(drop)
    }
}

async fn is_mounted(catalog: &Catalog, agent: &Agent, name: &Slug) -> Result<bool, Fault> {
    match catalog.definition::<Mount>(agent, name).await {
        Err(Fault::NotFound(_)) => Ok(false),
        found => found.map(|_| true),
    }
}
