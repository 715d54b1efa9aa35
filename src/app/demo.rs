//! The demo: a tenant, an agent with the definitions in `config/demo/` and the pages of a directory, a key, and commands to
//! paste.

mod documentation;

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) use self::documentation::Documentation;

use super::options::content_limits;
use super::{AppError, DatabaseServices, Running, credentials};
use crate::admin::definition::ManifestInput;
use crate::catalog::Catalog;
use crate::config::Settings;
use crate::identity::Identity;
use crate::identity::agents::NewAgent;
use crate::identity::grant::PresentedCredential;
use crate::identity::keys::NewKey;
use crate::identity::tenants::NewTenant;
use crate::model::agent::{Access, Agent, AgentDescription};
use crate::model::audit::write::AuditedWrite;
use crate::model::caller::KeyScope;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::Slug;
use crate::model::key::SecretKey;
use crate::model::key_bounds::Maker;
use crate::model::kinds::{Member, each_kind};
use crate::model::label::Labels;
use crate::model::limits::UseLimits;
use crate::model::precondition::Precondition;
use crate::model::tool::ToolSet;

const MANIFEST: &str = include_str!("../../config/demo/research.json");
const TENANT: &str = "demo";

/// How the demo is run.
#[derive(Debug, Default)]
pub struct Demo {
    /// A directory whose pages in Markdown are mounted as resources of the demo agent.
    pub docs: Option<PathBuf>,
}

/// Registers the demo agent if it does not exist, mounts the documentation, and prints commands that read both. Later
/// changes of the user are kept.
pub(super) async fn register(
    settings: &Settings,
    running: &Running,
    documentation: Option<&Documentation>,
) -> Result<(), AppError> {
    let services = &running.services;
    let manifest: ManifestInput =
        serde_json::from_str(MANIFEST).map_err(|error| AppError::Demo(error.to_string()))?;
    let failed = |fault: Fault| AppError::Demo(fault.to_string());
    let slug = manifest.agent.clone().unwrap_or_default();
    let (agent, created) = agent(&services.identity, &slug).await.map_err(failed)?;
    let key_file = settings.embedded.data_dir.join("demo.key");
    let kept = credentials::read(&key_file)?;
    // An interrupted first start has left an agent without definitions, and no key.
    let unfinished = kept.is_none() && is_empty(&services.catalog, &agent).await.map_err(failed)?;
    if created || unfinished {
        let wanted = manifest.check(content_limits(settings)).map_err(failed)?;
        let applied = services
            .catalog
            .apply_manifest(&agent, wanted, Precondition::default(), AuditedWrite::UNAUDITED)
            .await;
        applied.map_err(failed)?;
    }
    let key = match kept {
        Some(key) if is_good(&services.identity, &key, &agent).await.map_err(failed)? => key,
        _ => {
            let key = new_key(&services.identity, &agent).await.map_err(failed)?;
            credentials::write(&key_file, &key)?;
            key
        }
    };
    let page = match documentation {
        Some(documentation) => mounted(documentation, services, &agent).await,
        None => None,
    };
    // If standard output is closed, the gateway serves nevertheless.
    let _ =
        print(settings.server.url_of(running.address).as_str(), agent.slug.as_str(), &key, page.as_deref());
    Ok(())
}

/// Mounts the documentation; returns the URI of a page. The demo does without what cannot be mounted.
async fn mounted(
    documentation: &Documentation,
    services: &DatabaseServices,
    agent: &Agent,
) -> Option<String> {
    match documentation.mount(services, agent).await {
        Ok(()) => documentation.page(),
        Err(fault) => {
            tracing::warn!(%fault, "documentation of the demo not mounted");
            None
        }
    }
}

async fn is_empty(catalog: &Catalog, agent: &Agent) -> Result<bool, Fault> {
    let registered = catalog.manifest(agent, usize::MAX).await?.definitions;
    let mut empty = true;
    each_kind!(K => empty &= K::of(&registered).is_empty());
    Ok(empty)
}

/// Whether a key of an earlier start still reaches the agent.
async fn is_good(identity: &Identity, key: &SecretKey, agent: &Agent) -> Result<bool, Fault> {
    match identity
        .identify(PresentedCredential::Key(key, None), ClientAddress::Known(Ipv4Addr::LOCALHOST.into()))
        .await
    {
        Ok(grant) => Ok(grant.is_some_and(|grant| grant.credential.reaches(agent.tenant, agent.uid))),
        Err(Fault::Unauthenticated) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Returns the agent, and whether this call created it.
async fn agent(identity: &Arc<Identity>, slug: &str) -> Result<(Agent, bool), Fault> {
    let form = |_| Fault::NotFound("slug");
    let tenant = Slug::parse(TENANT).map_err(form)?;
    let of_the_demo = NewTenant {
        slug: tenant.clone(),
        name: "Demo".to_owned(),
        max_key_age: None,
        limits: UseLimits::default(),
        agent_limits: UseLimits::default(),
    };
    match identity.create_tenant(of_the_demo, AuditedWrite::UNAUDITED).await {
        Ok(_) | Err(Fault::AlreadyExists(_)) => {}
        Err(fault) => return Err(fault),
    }
    let description = AgentDescription {
        name: "Research Assistant".to_owned(),
        title: Some("Research Assistant".to_owned()),
        instructions: Some("Read beeos://agent/config first: it says what this agent can do.".to_owned()),
        tools: ToolSet::ALL.into_iter().collect(),
    };
    let new = NewAgent {
        slug: Slug::parse_agent(slug).map_err(form)?,
        tenant,
        description,
        access: Access::Key,
        enabled: None,
        limits: None,
        by_operator: true,
    };
    match identity.create_agent(new, AuditedWrite::UNAUDITED).await {
        Err(Fault::AlreadyExists(_)) => Ok((identity.agent(slug).await?, false)),
        created => Ok((created?, true)),
    }
}

async fn new_key(identity: &Arc<Identity>, agent: &Agent) -> Result<SecretKey, Fault> {
    let new = NewKey {
        labels: Labels::default(),
        tenant: agent.tenant,
        agent: Some(agent.uid),
        name: "demo".to_owned(),
        scopes: Some(vec![KeyScope::Mcp]),
        expires_at: None,
        limits: None,
        networks: None,
    };
    Ok(identity.create_key(new, Maker::Operator, AuditedWrite::UNAUDITED).await?.secret)
}

fn print(url: &str, agent: &str, key: &SecretKey, page: Option<&str>) -> std::io::Result<()> {
    let ask = |what: &str, method: &str, params: &str| {
        format!(
            "# {what}\ncurl -s -X POST \"{url}/{agent}/mcp\" -H \"X-Agent-API-Key: {}\" \
             -H \"Content-Type: application/json\" \
             -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{params}}}'\n",
            key.reveal()
        )
    };
    let prompt = r#"{"name":"research","arguments":{"topic":"量子计算","depth":"deep"}}"#;
    let tool = r#"{"name":"read_resource","arguments":{"uri":"beeos://agent/config"}}"#;
    let mut out = std::io::stdout().lock();
    writeln!(out, "Waggle serves the demo agent «{agent}». Paste into another terminal:\n")?;
    writeln!(out, "{}", ask("every resource that it has registered", "resources/list", "{}"))?;
    writeln!(out, "{}", ask("one of them", "resources/read", r#"{"uri":"beeos://agent/config"}"#))?;
    writeln!(out, "{}", ask("its prompts", "prompts/list", "{}"))?;
    writeln!(out, "{}", ask("one of them, rendered", "prompts/get", prompt))?;
    writeln!(out, "{}", ask("a resource, by a tool for clients that know only tools", "tools/call", tool))?;
    if let Some(page) = page {
        let params = format!(r#"{{"uri":"{page}"}}"#);
        writeln!(out, "{}", ask("a page of the documentation, from its file", "resources/read", &params))?;
    }
    out.flush()
}
