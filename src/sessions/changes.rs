//! Writes to a session: subscriptions, log level, streams, end.

use std::sync::Arc;

use super::Sessions;
use crate::model::audit::write::AuditedWrite;
use crate::model::fault::Fault;
use crate::model::ids::{ResourceUri, SessionUid};
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::model::session::{LogLevel, Session};
use crate::store::write::Write;

impl Sessions {
    /// Subscribes a session to a resource; an existing subscription remains as it is. The caller checks that the URI
    /// names something readable.
    ///
    /// # Errors
    /// [`Fault::SessionNotFound`] if it ended meanwhile, [`Fault::InvalidParams`] above the maximum number of
    /// subscriptions.
    pub async fn subscribe(self: &Arc<Self>, session: &Session, uri: &ResourceUri) -> Result<(), Fault> {
        let (sessions, session, uri) = (Arc::clone(self), session.uid, uri.clone());
        self.writer
            .detached(async move {
                sessions
                    .writer
                    .transact(Scope::from(session), &AuditedWrite::UNAUDITED, async |write| {
                        sessions.insert_subscription(write, session, &uri).await
                    })
                    .await
            })
            .await
    }

    async fn insert_subscription(
        &self,
        write: &mut Write,
        session: SessionUid,
        uri: &ResourceUri,
    ) -> Result<(), Fault> {
        lock(write, session).await?;
        let state = write.subscription_state(session, uri).await?.ok_or(Fault::SessionNotFound)?;
        if state.present {
            return Ok(());
        }
        if usize::try_from(state.count).is_ok_and(|count| count >= self.limits.subscriptions) {
            return Err(Fault::invalid_params(
                "the session's limit of subscriptions is reached; unsubscribe from one first",
            ));
        }
        write.insert_subscription(session, uri, state.since).await?;
        write.change(Scope::from(session), ChangeKind::SessionSubscription, uri.as_str());
        Ok(())
    }

    /// Ends a session's subscription to a resource, if it has one.
    ///
    /// # Errors
    /// [`Fault::SessionNotFound`] if it ended meanwhile.
    pub async fn unsubscribe(self: &Arc<Self>, session: &Session, uri: &ResourceUri) -> Result<(), Fault> {
        let (sessions, session, uri) = (Arc::clone(self), session.uid, uri.clone());
        self.writer
            .detached(async move {
                sessions
                    .writer
                    .transact(Scope::from(session), &AuditedWrite::UNAUDITED, async |write| {
                        lock_open(write, session).await?;
                        if write.delete_subscription(session, &uri).await? {
                            write.change(Scope::from(session), ChangeKind::SessionSubscription, uri.as_str());
                        }
                        Ok(())
                    })
                    .await
            })
            .await
    }

    /// Sets the log level of a session: the minimum level of the messages that it receives.
    ///
    /// # Errors
    /// [`Fault::SessionNotFound`] if it ended meanwhile.
    pub async fn set_level(self: &Arc<Self>, session: &Session, level: LogLevel) -> Result<(), Fault> {
        let (sessions, session) = (Arc::clone(self), session.uid);
        self.writer
            .detached(async move {
                sessions
                    .writer
                    .transact(Scope::from(session), &AuditedWrite::UNAUDITED, async |write| {
                        let (current, _) = lock_open(write, session).await?;
                        if current.level != Some(level) {
                            write.set_session_level(session, level).await?;
                            write.change(Scope::from(session), ChangeKind::SessionLevel, level.as_str());
                        }
                        Ok(())
                    })
                    .await
            })
            .await
    }

    /// Makes a new stream the active stream of the session, in place of any other. Returns the session with the number of
    /// the stream, and the new revision of its scope.
    ///
    /// # Errors
    /// [`Fault::SessionNotFound`] if it ended meanwhile.
    pub async fn take_stream(self: &Arc<Self>, session: &Session) -> Result<(Arc<Session>, Revision), Fault> {
        let (sessions, session) = (Arc::clone(self), session.uid);
        self.writer
            .detached(async move {
                sessions
                    .writer
                    .transact(Scope::from(session), &AuditedWrite::UNAUDITED, async |write| {
                        let (mut present, revision) = lock_open(write, session).await?;
                        present.streams_opened += 1;
                        write
                            .set_streams_opened(session, present.streams_opened, sessions.system.clock.now())
                            .await?;
                        let number = present.streams_opened.to_string();
                        write.change(Scope::from(session), ChangeKind::SessionStream, number);
                        Ok((Arc::new(present), revision))
                    })
                    .await
            })
            .await
    }

    /// Ends a session, if it has not ended yet.
    pub async fn end(self: &Arc<Self>, session: &Session) -> Result<(), Fault> {
        let (sessions, session) = (Arc::clone(self), session.uid);
        self.writer.detached(async move { sessions.end_now(session).await }).await
    }

    pub(super) async fn end_now(&self, session: SessionUid) -> Result<(), Fault> {
        self.writer
            .transact(Scope::from(session), &AuditedWrite::UNAUDITED, async |write| {
                let locked = write.lock(Scope::from(session)).await?;
                if locked.is_some() && write.end_session(session, self.system.clock.now()).await? {
                    let subject = session.to_string();
                    write.change(Scope::from(session), ChangeKind::SessionEnded, subject);
                }
                Ok(())
            })
            .await
    }
}

/// Locks a session's scope; a purged session has none.
async fn lock(write: &mut Write, session: SessionUid) -> Result<Revision, Fault> {
    write.lock(Scope::from(session)).await?.ok_or(Fault::SessionNotFound)
}

/// Locks a session's scope and reads its current state, if it has not ended.
async fn lock_open(write: &mut Write, session: SessionUid) -> Result<(Session, Revision), Fault> {
    let revision = lock(write, session).await?;
    let present = write.session(session).await?.ok_or(Fault::SessionNotFound)?;
    Ok((present, revision))
}
