//! Opens sessions, within the bounds of their holder.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::time::Instant;
use uuid::Uuid;

use super::cached::principal_of;
use super::{Reduction, SessionLimits, Sessions};
use crate::identity::grant::Caller;
use crate::model::audit::write::AuditedWrite;
use crate::model::caller::Payer;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::AgentId;
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::model::session::{SessionHolder, SessionId};
use crate::store::sessions::{OpenOutcome, SessionCap, SessionRow};

/// The maximum length of a client's name and version that is stored, in bytes.
const MAX_NAME: usize = 512;
/// The maximum length of a client's capabilities, in bytes.
const MAX_CAPABILITIES: usize = 64 << 10;
/// The part of a holder's bound by which its sessions may exceed it temporarily: ending one for each that is opened
/// would cost a client that only opens sessions one more transaction each time.
const SLACK: i64 = 16;
/// The maximum number of sessions ended by one transaction; more exist only if very many were opened concurrently.
const MAX_ENDED: i64 = 10_000;

/// A session as requested by a client.
#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    /// The negotiated revision of the protocol.
    pub version: &'a str,
    /// The name of the client.
    pub client_name: &'a str,
    /// The version of the client.
    pub client_version: &'a str,
    /// The capabilities of the client, as JSON.
    pub capabilities: &'a str,
}

/// A session that was just opened. It ends when this is dropped, unless its client [receives](Self::into_id) its id.
pub struct OpenedSession {
    sessions: Arc<Sessions>,
    id: SessionId,
    since: Revision,
    received: bool,
}

impl OpenedSession {
    /// The revision of the agent's scope from which the session notifies.
    pub fn since(&self) -> Revision {
        self.since
    }

    /// The id, once the client receives it.
    pub fn into_id(mut self) -> SessionId {
        self.received = true;
        self.id.clone()
    }

    /// The id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }
}

impl Drop for OpenedSession {
    fn drop(&mut self) {
        if self.received {
            return;
        }
        // Without a runtime the process is ending; the session expires.
        let Ok(runtime) = Handle::try_current() else { return };
        let (sessions, session) = (Arc::clone(&self.sessions), self.id.uid());
        let ending = async move {
            if let Err(error) = sessions.end_now(session).await {
                tracing::debug!(%error, "session without a client not ended; it expires when idle");
            }
        };
        self.sessions.writer.tasks().spawn_on(ending, &runtime);
    }
}

impl Sessions {
    /// Opens a session of a caller at the address `client`. If its holder has the maximum number with this agent, the
    /// least recently used one ends, and sessions without an open stream end before those with one.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] for capabilities that are too long, and for a name or version with a NUL character;
    /// [`Fault::Forbidden`] if the agent was just deleted;
    /// [`Fault::Unavailable`] if too many sessions wait to be opened, or this one for too long;
    /// [`Fault::StorageUnavailable`] if the database does not answer: a session that was opened all the same expires,
    /// since no client has its id.
    pub async fn open(
        self: &Arc<Self>,
        caller: &Caller,
        client: ClientAddress,
        new: NewSession<'_>,
    ) -> Result<OpenedSession, Fault> {
        if new.capabilities.len() > MAX_CAPABILITIES {
            return Err(Fault::invalid_params(format!(
                "capabilities is longer than {MAX_CAPABILITIES} bytes"
            )));
        }
        let id = SessionId::generate(&mut self.system.csprng()?);
        let principal = principal_of(caller);
        let holder = principal.map_or_else(|| SessionHolder::address(client), SessionHolder::from);
        let new = SessionRow {
            hash: id.hash(),
            uid: id.uid(),
            tenant: caller.tenant,
            agent: caller.agent,
            principal,
            holder,
            version: new.version.to_owned(),
            client_name: stored_name("clientInfo.name", new.client_name)?,
            client_version: stored_name("clientInfo.version", new.client_version)?,
            capabilities: new.capabilities.to_owned(),
            labels: caller.labels().digest(),
            now: self.system.clock.now(),
        };
        let (sessions, payer) = (Arc::clone(self), caller.payer());
        // A client that disconnects meanwhile drops the opened session, which ends it.
        self.writer.detached(async move { sessions.open_within_bounds(payer, Arc::new(new), id).await }).await
    }

    async fn open_within_bounds(
        self: Arc<Self>,
        payer: Payer,
        new: Arc<SessionRow>,
        id: SessionId,
    ) -> Result<OpenedSession, Fault> {
        let began = Instant::now();
        loop {
            let write = |batch: Vec<_>| self.insert(batch);
            let inserted = self.inserts.write(payer, Arc::clone(&new), write).await;
            match inserted.map_err(|fault| self.writer.cause_of(fault))? {
                OpenOutcome::Opened(since) => {
                    return Ok(OpenedSession { sessions: self, id, since, received: false });
                }
                OpenOutcome::NoAgent => return Err(Fault::Forbidden),
                // Concurrently opened sessions of the same holder may take the freed capacity.
                OpenOutcome::Full if began.elapsed() >= self.writer.longest_wait() => {
                    return Err(self.writer.cause_of(Fault::BUSY));
                }
                OpenOutcome::Full => {}
            }
            let write = |batch: Vec<_>| self.reduce_all(batch);
            let reduced = self.reductions.write(payer, (payer, new.agent, new.holder), write).await;
            reduced.map_err(|fault| self.writer.cause_of(fault))??;
        }
    }

    async fn insert(&self, batch: Vec<Arc<SessionRow>>) -> Result<Vec<OpenOutcome>, Fault> {
        // Within the statement, which may wait for a share of the pool first.
        let placing = async {
            let counts = self.counts.of(&batch);
            let known: Vec<_> = batch.iter().map(|new| counts.of_holder(new)).collect();
            let placed = self.store.open_sessions(&batch, &known, self.limits.threshold()).await?;
            self.counts.keep(counts, &batch, &placed);
            Ok(placed)
        };
        let placed = self.writer.execute(placing).await?;
        Ok(placed.into_iter().map(|placed| placed.outcome).collect())
    }

    /// Ends sessions so that others can be opened: one for each time that its holder is listed. Holders may be of different
    /// tenants: what fails for one fails for no other.
    async fn reduce_all(&self, rows: Vec<Reduction>) -> Result<Vec<Result<(), Fault>>, Fault> {
        let mut counts = HashMap::<_, i64>::new();
        for row in &rows {
            *counts.entry(*row).or_default() += 1;
        }
        let reduced = async |(row, count)| (row, self.reduce(row, count).await);
        let made = join_all(counts.into_iter().map(reduced).collect::<Vec<_>>()).await;
        let made: HashMap<_, _> = made.into_iter().collect();
        let outcome = |row| made.get(row).cloned().unwrap_or(Err(Fault::StorageUnavailable));
        Ok(rows.iter().map(outcome).collect())
    }

    /// Ends sessions of a holder, except those in use and those used last, so that `count` more are within its bound,
    /// unless another replica has done so meanwhile.
    async fn reduce(&self, (payer, agent, holder): Reduction, count: i64) -> Result<(), Fault> {
        if self.uses.any_waits() {
            let present =
                self.loader.load(payer, async || self.store.sessions_of(agent, holder, MAX_ENDED).await);
            self.write_uses_of(&present.await?).await;
        }
        let now = self.system.clock.now();
        let streams_since = now - self.uses.open_stream_lifetime();
        let most = i64::from(self.limits.per_principal);
        let count = count.min(most);
        let (keep, threshold) = (most - count, self.limits.threshold() - count + 1);
        let cap = SessionCap { agent, holder, keep, threshold, streams_since };
        self.writer
            .transact(reduction_scope(agent, holder), &AuditedWrite::UNAUDITED, async |write| {
                for session in write.end_sessions_beyond(cap, now, MAX_ENDED).await? {
                    write.change(Scope::from(session), ChangeKind::SessionEnded, session.to_string());
                }
                Ok(())
            })
            .await
    }
}

impl SessionLimits {
    /// The most sessions that a holder has before some end.
    pub(super) fn threshold(&self) -> i64 {
        let most = i64::from(self.per_principal);
        most + most / SLACK
    }
}

/// The scope of the write permit under which a holder's sessions with an agent are reduced: of no session.
fn reduction_scope(agent: AgentId, holder: SessionHolder) -> Scope {
    Scope(Uuid::from_u128(agent.0.as_u128() ^ !holder.0.as_u128()))
}

/// The part of a name that is stored.
fn stored_name(member: &str, name: &str) -> Result<String, Fault> {
    let name = &name[..name.floor_char_boundary(MAX_NAME)];
    if name.contains('\0') {
        return Err(Fault::invalid_params(format!("{member} contains a NUL character")));
    }
    Ok(name.to_owned())
}
