//! Sessions are opened.

use std::sync::Arc;

use uuid::Uuid;

use super::principal_of;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, PrincipalId};
use crate::model::scope::{ChangeKind, Scope};
use crate::model::session::SessionId;
use crate::registry::Registry;
use crate::registry::access::Caller;
use crate::store::sessions::{OpenSession, Opened};

/// Most bytes that are kept of what a client calls itself.
const MOST_NAME: usize = 512;
/// Most bytes of what a client says that it can do.
const MOST_CAPABILITIES: usize = 64 << 10;
/// One in so many of the sessions that a principal may have may be too many for a while: ending one for each that is
/// opened would cost a client that only ever opens a transaction more each time.
const CROWD: i64 = 16;
/// Sessions ended at once; there are more only where very many were opened at the same moment.
const MOST_ENDED: i64 = 10_000;

/// A session as a client asks for it.
#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    /// The negotiated revision of the protocol.
    pub version: &'a str,
    /// What the client calls itself.
    pub client_name: &'a str,
    /// Which version of itself the client says that it is.
    pub client_version: &'a str,
    /// What the client says that it can do, as JSON.
    pub capabilities: &'a str,
}

impl Registry {
    /// Opens a session of the caller's. Where its principal has as many with this agent as it may have, the one used
    /// longest ago ends.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] for what is too long to be kept; [`Fault::Forbidden`] where the agent has just been
    /// deleted.
    pub async fn open_session(
        self: &Arc<Self>,
        caller: &Caller,
        new: NewSession<'_>,
    ) -> Result<SessionId, Fault> {
        if new.capabilities.len() > MOST_CAPABILITIES {
            return Err(Fault::invalid_params(format!(
                "capabilities is longer than {MOST_CAPABILITIES} bytes"
            )));
        }
        let id = SessionId::generate(&mut self.sources.csprng()?);
        let new = OpenSession {
            hash: id.hash(),
            uid: id.uid(),
            tenant: caller.tenant,
            agent: caller.agent,
            principal: principal_of(caller),
            version: new.version.to_owned(),
            client_name: kept("clientInfo.name", new.client_name)?,
            client_version: kept("clientInfo.version", new.client_version)?,
            capabilities: new.capabilities.to_owned(),
            now: self.sources.clock.now(),
        };
        let most = i64::from(self.limits.sessions_per_principal);
        let crowd = most + most / CROWD;
        let mut opened = self.insert_session(new.clone(), crowd).await?;
        if opened == Opened::Full {
            self.make_room(new.agent, new.principal, (most - 1, crowd)).await?;
            opened = self.insert_session(new, i64::MAX).await?;
        }
        if opened == Opened::Yes { Ok(id) } else { Err(Fault::Forbidden) }
    }

    async fn insert_session(self: &Arc<Self>, new: OpenSession, most: i64) -> Result<Opened, Fault> {
        let registry = Arc::clone(self);
        self.detached(async move {
            let inserting = registry.store.open_session(&new, most);
            registry.in_turn(Scope::from(new.uid), inserting).await
        })
        .await
    }

    /// Ends the sessions of a principal but for those used last, where nobody else has done so meanwhile.
    async fn make_room(
        self: &Arc<Self>,
        agent: AgentId,
        principal: Option<PrincipalId>,
        bounds: (i64, i64),
    ) -> Result<(), Fault> {
        let registry = Arc::clone(self);
        self.detached(async move {
            registry
                .transact(queue(agent, principal), async |write| {
                    let (holder, now) = ((agent, principal), registry.sources.clock.now());
                    for session in write.end_sessions_beyond(holder, bounds, now, MOST_ENDED).await? {
                        write.change(Scope::from(session), ChangeKind::SessionEnded, session.to_string());
                    }
                    Ok(())
                })
                .await
        })
        .await
    }
}

/// Where those wait who make room for a principal at an agent. No scope of anybody's.
fn queue(agent: AgentId, principal: Option<PrincipalId>) -> Scope {
    let principal = principal.map_or(Uuid::max(), |principal| principal.0);
    Scope(Uuid::from_u128(agent.0.as_u128() ^ principal.as_u128()))
}

/// As much of a name as is kept.
fn kept(member: &str, name: &str) -> Result<String, Fault> {
    let name = &name[..name.floor_char_boundary(MOST_NAME)];
    if name.contains('\0') {
        return Err(Fault::invalid_params(format!("{member} holds a NUL character")));
    }
    Ok(name.to_owned())
}
