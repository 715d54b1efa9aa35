//! A poll of watched content: it is fetched, and a change is a revision of the agent.

use std::sync::{Arc, Weak};
use std::time::Duration;

use content_source::{Content, Kind, Location, Path};
use sha2::{Digest as _, Sha256};

use super::record::{FoundChange, Recorded, SharedContents, StoredBytes};
use crate::catalog::Catalog;
use crate::catalog::snapshot::view::{Answering, View};
use crate::model::caller::Payer;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::ids::AgentRef;
use crate::model::scope::Revision;
use crate::sources::{ContentError, Polled};
use crate::store::leases::ConnectionLease;
use crate::store::watched::FoundDigest;
use crate::store::watching::WatchedSubject;

/// What is known of watched content.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// What is recorded of it.
    pub(super) recorded: Option<FoundDigest>,
    /// What it is recorded of, as long as it is in memory: content that is unchanged is not hashed again.
    pub(super) contents: Option<Weak<[Content]>>,
}

/// Whether content is as it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    /// It was not, and is recorded now.
    Changed,
    /// What it is compared with changed meanwhile.
    Open,
}

/// What a poll of content found.
#[derive(Debug)]
pub(super) struct PollResult {
    /// What is known of it now.
    pub(super) known: Known,
    pub(super) verdict: Verdict,
    /// What it was fetched from, and at which revision of the connection.
    pub(super) source: (Kind, Revision),
    /// Its path, if it has one.
    pub(super) path: Option<Path>,
    /// Whether it is a file of a mount, whose changes scans leave to this watch from now on.
    pub(super) is_of_mount: bool,
    /// How often content of the connection is polled.
    pub(super) every: Duration,
}

impl Catalog {
    /// Fetches watched content, and makes a revision if it differs from what is recorded. `None` if it does not come from the
    /// connection any more, or the lease is lost.
    pub(super) async fn poll(
        self: &Arc<Self>,
        lease: &ConnectionLease,
        subject: &WatchedSubject,
        known: &Known,
        stored: &StoredBytes,
    ) -> Result<Option<PollResult>, Fault> {
        let (agent, variant) = subject;
        let AgentRef { tenant, uid } = *agent;
        let snapshot = self.snapshot_of(Payer::Tenant(tenant), tenant, uid).await?;
        let view = View::unfiltered(snapshot);
        let Some(answering) = view.answering_as(variant) else { return Ok(None) };
        let sourced = answering.sourced();
        let wanted = sourced.and_then(|sourced| sourced.wanted(*agent, Payer::Tenant(tenant)));
        let Some(wanted) = wanted.filter(|wanted| wanted.connection == lease.connection) else {
            return Ok(None);
        };
        let path = match &*wanted.location {
            Location::Path { path, .. } => Some(path.clone()),
            Location::Statement { .. } => None,
        };
        // What was recorded is what the source answered once, also that there is no such content.
        let is_known = known.recorded.is_some();
        let polled = self.fetcher.poll(wanted, is_known).await.map_err(|error| match error {
            ContentError::NotFound => Fault::ResourceNotFound(variant.uri.clone()),
            ContentError::Fault(fault) => fault,
        })?;
        let Polled { source, every, .. } = polled;
        let is_of_mount = matches!(answering, Answering::Mounted(..));
        let weak = polled.contents.as_ref().map(Arc::downgrade);
        let is_same =
            known.contents.as_ref().zip(weak.as_ref()).is_some_and(|(known, found)| known.ptr_eq(found));
        let result = |verdict, recorded, contents| {
            let known = Known { recorded, contents };
            Some(PollResult { known, verdict, source, path, is_of_mount, every })
        };
        // That a file of a mount vanished is found by a scan.
        if is_of_mount && polled.contents.is_none() {
            return Ok(result(Verdict::Same, known.recorded, None));
        }
        if is_same && known.recorded.is_some() {
            return Ok(result(Verdict::Same, known.recorded, weak));
        }
        let digest = digest(polled.contents.as_deref());
        if known.recorded.is_some_and(|recorded| recorded.digest == digest) {
            return Ok(result(Verdict::Same, known.recorded, weak));
        }
        let contents = SharedContents::new(&polled, lease, stored);
        let is_first =
            view.answering(&variant.uri).is_ok_and(|first| first.variant(&variant.uri) == *variant);
        let name = if is_first { variant.uri.to_string() } else { variant.to_string() };
        let change = FoundChange { previous_digest: known.recorded, digest, contents, subject: name };
        match self.record(lease, subject, &answering, change).await? {
            Recorded::Done(revision) => {
                self.fetcher.carry(polled, revision);
                let fence = known.recorded.map_or(0, |recorded| recorded.fence) + 1;
                Ok(result(Verdict::Changed, Some(FoundDigest { digest, fence }), weak))
            }
            Recorded::Outdated => {
                let recorded = self.store.found(*agent, variant).await?;
                Ok(result(Verdict::Open, recorded, None))
            }
            Recorded::LeaseLost => Ok(None),
        }
    }
}

/// A digest of contents; `None` if there are none.
fn digest(contents: Option<&[Content]>) -> ContentHash {
    let mut hasher = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    for content in contents.into_iter().flatten() {
        part(content.name.as_deref().unwrap_or_default().as_bytes());
        part(content.mime_type.as_deref().unwrap_or_default().as_bytes());
        part(&content.bytes);
    }
    part(if contents.is_some() { b"" } else { b"missing" });
    ContentHash(hasher.finalize().into())
}
