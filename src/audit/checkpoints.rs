//! Periodic checkpoints, written by one replica at a time to an external destination under unique names.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, IF_NONE_MATCH};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::error::AuditError;
use crate::config::CheckpointTarget;
use crate::model::audit::checkpoint::Checkpoint;
use crate::model::audit::signature::Signer;
use crate::model::system::{RandomError, System};
use crate::store::{Store, StoreError};
use crate::telemetry::RepeatedWork;

/// Interval of checks whether a checkpoint is due.
const POLL: Duration = Duration::from_secs(10);
/// Timeout of an upload; shorter than the lease of the replica that performs it.
const DEADLINE: Duration = Duration::from_secs(30);

/// Why a checkpoint was not written.
#[derive(Debug, thiserror::Error)]
enum CheckpointError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error("{0}")]
    Encode(#[from] serde_json::Error),
    #[error("{0}: {1}")]
    File(PathBuf, #[source] io::Error),
    #[error("{0}")]
    Address(#[source] reqwest::Error),
    #[error("the checkpoint address responded with {0}")]
    Status(StatusCode),
    #[error("the checkpoint address cannot be extended by a file name")]
    Name,
}

/// Destination of checkpoints.
pub(super) enum CheckpointDestination {
    Directory(PathBuf),
    Address(Client, String),
}

impl CheckpointDestination {
    pub(super) fn new(target: CheckpointTarget) -> Result<Self, AuditError> {
        match target {
            CheckpointTarget::Directory(path) => Ok(Self::Directory(path)),
            CheckpointTarget::Address(url) => {
                // An application that embeds the gateway may have chosen no provider; an earlier choice
                // remains in force.
                rustls::crypto::ring::default_provider().install_default().ok();
                let client = Client::builder().timeout(DEADLINE).redirect(Policy::none()).no_proxy().build();
                Ok(Self::Address(client.map_err(AuditError::Client)?, url.as_str().to_owned()))
            }
        }
    }

    async fn write(&self, name: String, json: Vec<u8>) -> Result<(), CheckpointError> {
        match self {
            Self::Directory(folder) => {
                let folder = folder.clone();
                let written = tokio::task::spawn_blocking(move || {
                    create(&folder, &name, &json).map_err(|error| CheckpointError::File(folder, error))
                });
                let ended = |_| CheckpointError::File(PathBuf::new(), io::ErrorKind::Interrupted.into());
                written.await.map_err(ended)?
            }
            Self::Address(client, address) => {
                let mut url = Url::parse(address).map_err(|_| CheckpointError::Name)?;
                url.path_segments_mut().map_err(|()| CheckpointError::Name)?.pop_if_empty().push(&name);
                let request = client.put(url).header(CONTENT_TYPE, "application/json");
                let request = request.header(IF_NONE_MATCH, "*").body(json);
                // The query of the address may contain a credential.
                let answer =
                    request.send().await.map_err(|error| CheckpointError::Address(error.without_url()))?;
                let status = answer.status();
                if status.is_success() { Ok(()) } else { Err(CheckpointError::Status(status)) }
            }
        }
    }
}

/// Creates a file atomically. Its name must be unique: an existing file is replaced. Not by a hard link, which fails where
/// one exists: not every file system has them.
fn create(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let (file, unfinished) = (folder.join(name), folder.join(format!("{name}.new")));
    let mut writer = OpenOptions::new().write(true).create_new(true).open(&unfinished)?;
    let written = writer.write_all(bytes).and_then(|()| writer.sync_all());
    written
        .and_then(|()| fs::rename(&unfinished, &file))
        .inspect_err(|_| _ = fs::remove_file(&unfinished))?;
    File::open(folder)?.sync_all()
}

/// Task that writes checkpoints.
pub(super) struct CheckpointWriter {
    pub(super) target: CheckpointDestination,
    pub(super) every: Duration,
    pub(super) store: Store,
    pub(super) system: System,
    pub(super) signer: Option<Arc<Signer>>,
}

impl CheckpointWriter {
    /// Writes a checkpoint whenever one is due, until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(POLL);
        let writing = RepeatedWork::default();
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            let Some(written) = stop.run_until_cancelled(self.write_if_due()).await else { break };
            // Also if another replica writes them.
            if matches!(written, Ok(None)) {
                continue;
            }
            writing.record("writing an audit checkpoint", &written);
            if let Ok(Some(name)) = written {
                tracing::info!(name, "audit checkpoint written");
            }
        }
    }

    /// Writes a checkpoint if one is due and no other replica is writing it; returns its name.
    async fn write_if_due(&self) -> Result<Option<String>, CheckpointError> {
        if !self.store.lease_checkpoint(self.every).await? {
            return Ok(None);
        }
        let made = make_checkpoint(&self.store, self.system.clock.now(), self.signer.as_deref()).await?;
        let name = self.name(&made)?;
        let mut json = serde_json::to_vec_pretty(&made)?;
        json.push(b'\n');
        self.target.write(name.clone(), json).await?;
        self.store.record_checkpoint().await?;
        Ok(Some(name))
    }

    /// A unique name that sorts by time.
    fn name(&self, made: &Checkpoint) -> Result<String, RandomError> {
        let time: String = made.at.chars().take(19).filter(|c| !matches!(c, '-' | ':')).collect();
        Ok(format!("waggle-audit-{time}Z-{}.json", self.system.uid()?))
    }
}

/// Makes a checkpoint of all chains, signed if there is a key.
pub(super) async fn make_checkpoint(
    store: &Store,
    at: time::OffsetDateTime,
    signer: Option<&Signer>,
) -> Result<Checkpoint, StoreError> {
    let checkpoint = store.audit_checkpoint(at).await?;
    Ok(match signer {
        Some(signer) => checkpoint.signed(signer),
        None => checkpoint,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::create;

    #[test]
    fn failed_checkpoint_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        // A file cannot be renamed to a directory.
        fs::create_dir(folder.path().join("taken")).unwrap();
        create(folder.path(), "taken", b"{}").unwrap_err();
        create(folder.path(), "written", b"{}").unwrap();
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["taken", "written"]);
    }
}
