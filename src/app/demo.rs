//! The demo: a tenant, an agent with what `config/demo/` holds, a key, and lines to paste.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::{AppError, Running};
use crate::admin::definition::ManifestInput;
use crate::config::Settings;
use crate::model::agent::{Access, Agent, AgentDescription};
use crate::model::caller::KeyScope;
use crate::model::fault::Fault;
use crate::model::ids::{KeyId, Slug};
use crate::model::key::SecretKey;
use crate::model::limits::{RateLimit, UseLimits};
use crate::model::networks::Networks;
use crate::registry::Registry;
use crate::registry::agents::NewAgent;
use crate::registry::keys::NewKey;
use crate::registry::tenants::NewTenant;
use crate::registry::write::Precondition;

const MANIFEST: &str = include_str!("../../config/demo/research.json");
const TENANT: &str = "demo";

/// Registers the demo agent as far as it is not there yet, and prints how to read it.
pub(super) async fn register(settings: &Settings, running: &Running) -> Result<(), AppError> {
    let manifest: ManifestInput =
        serde_json::from_str(MANIFEST).map_err(|error| AppError::Demo(error.to_string()))?;
    let failed = |fault: Fault| AppError::Demo(fault.to_string());
    let slug = manifest.agent.clone().unwrap_or_default();
    let agent = agent(&running.registry, &slug).await.map_err(failed)?;
    let wanted = manifest.check(settings.limits.content_bytes).map_err(failed)?;
    let applied = running.registry.apply_manifest(&agent, wanted, Precondition::default()).await;
    applied.map_err(failed)?;
    let key = key(&settings.embedded.data_dir.join("demo-key.id"), &running.registry, &agent).await?;
    // Nobody reads it: the gateway serves all the same.
    let _ = print(settings.server.url_of(running.address).as_str(), agent.slug.as_str(), &key);
    Ok(())
}

async fn agent(registry: &Arc<Registry>, slug: &str) -> Result<Agent, Fault> {
    let form = |_| Fault::NotFound("slug");
    let tenant = Slug::parse(TENANT).map_err(form)?;
    let of_the_demo = NewTenant {
        slug: tenant.clone(),
        name: "Demo".to_owned(),
        max_key_age: None,
        limits: UseLimits::default(),
    };
    match registry.create_tenant(of_the_demo).await {
        Ok(_) | Err(Fault::AlreadyExists(_)) => {}
        Err(fault) => return Err(fault),
    }
    let description = AgentDescription {
        name: "Research Assistant".to_owned(),
        title: Some("Research Assistant".to_owned()),
        instructions: Some("Read beeos://agent/config first: it says what this agent can do.".to_owned()),
    };
    let new = NewAgent {
        slug: Slug::parse_agent(slug).map_err(form)?,
        tenant,
        description,
        access: Access::Key,
        enabled: true,
        limits: UseLimits::default(),
    };
    match registry.create_agent(new).await {
        Err(Fault::AlreadyExists(_)) => registry.agent(slug).await,
        made => made,
    }
}

/// A new key for this run. That of the last run, whose lines are still in somebody's terminal, is revoked: the file
/// knows it by its id, since no secret is kept in clear.
async fn key(file: &Path, registry: &Arc<Registry>, agent: &Agent) -> Result<SecretKey, AppError> {
    let failed = |fault: Fault| AppError::Demo(fault.to_string());
    let unusable = |error| AppError::File(file.display().to_string(), error);
    let last = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    if let Some(last) = last {
        match registry.key(KeyId(last)).await {
            Ok(key) if key.agent == Some(agent.uid) => _ = registry.revoke_key(&key).await.map_err(failed)?,
            Ok(_) | Err(Fault::NotFound(_)) => {}
            Err(fault) => return Err(failed(fault)),
        }
    }
    let new = NewKey {
        tenant: agent.tenant,
        agent: Some(agent.uid),
        name: "demo".to_owned(),
        scopes: vec![KeyScope::Mcp],
        expires_at: None,
        limits: RateLimit::default(),
        networks: Networks::default(),
    };
    let made = registry.create_key(new).await.map_err(failed)?;
    // Beside a configured database nobody has made the data directory yet.
    file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(unusable)?;
    std::fs::write(file, made.key.uid.to_string()).map_err(unusable)?;
    Ok(made.secret)
}

fn print(url: &str, agent: &str, key: &SecretKey) -> std::io::Result<()> {
    let ask = |what: &str, method: &str, params: &str| {
        format!(
            "# {what}\ncurl -s -X POST \"{url}/{agent}/mcp\" -H \"X-Agent-API-Key: {}\" \
             -H \"Content-Type: application/json\" \
             -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{params}}}'\n",
            key.reveal()
        )
    };
    let prompt = r#"{"name":"research","arguments":{"topic":"量子计算","depth":"deep"}}"#;
    let mut out = std::io::stdout().lock();
    writeln!(out, "Waggle serves the demo agent «{agent}». Paste into another terminal:\n")?;
    writeln!(out, "{}", ask("every resource that it has registered", "resources/list", "{}"))?;
    writeln!(out, "{}", ask("one of them", "resources/read", r#"{"uri":"beeos://agent/config"}"#))?;
    writeln!(out, "{}", ask("its prompts", "prompts/list", "{}"))?;
    writeln!(out, "{}", ask("one of them, rendered", "prompts/get", prompt))?;
    out.flush()
}
