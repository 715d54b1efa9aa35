//! Creates the database cluster atomically.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use crate::error::{EmbeddedError, ExitReason, IoContext};
use crate::folder::{DataFolder, remove_draft};
use crate::guardian::{Guardian, Program};
use crate::installation::Installation;

/// The first available one is used. Both collate by bytes; the first also classifies characters beyond ASCII.
const LOCALES: [&str; 2] = ["C.UTF-8", "C"];

/// The creation of a cluster.
#[derive(Debug)]
pub(super) struct Creation<'a> {
    pub(super) name: &'a str,
    pub(super) data: &'a DataFolder,
    pub(super) installation: &'a Installation,
    pub(super) guardian: &'a Guardian,
    pub(super) durable: bool,
    pub(super) deadline: Duration,
}

impl Creation<'_> {
    /// Creates the cluster under another name and renames it when it is complete, so that a process killed meanwhile
    /// leaves no incomplete cluster.
    pub(super) async fn run(&self) -> Result<(), EmbeddedError> {
        let draft = self.data.draft();
        let result = self.fill(&draft).await.and_then(|()| self.publish(&draft));
        if result.is_err() {
            remove_draft(&draft);
        }
        result
    }

    async fn fill(&self, draft: &Path) -> Result<(), EmbeddedError> {
        DirBuilder::new().mode(0o700).create(draft).context("create", draft)?;
        self.guardian.account.own(draft)?;
        let mut result = Ok(());
        for locale in LOCALES {
            result = self.initdb(draft, locale).await;
            match &result {
                Err(EmbeddedError::CreateFailed { output, .. }) if output.contains("invalid locale") => {}
                _ => break,
            }
        }
        result
    }

    async fn initdb(&self, draft: &Path, locale: &str) -> Result<(), EmbeddedError> {
        let path = self.installation.initdb();
        let program = Program {
            path: &path,
            arguments: self.arguments(draft, locale),
            environment: Vec::new(),
            folder: draft,
            socket: None,
        };
        let log = &self.guardian.log;
        let mark = log.end();
        let mut initdb = self.guardian.spawn(&program).context("run", &path)?;
        let ended = timeout(self.deadline, initdb.wait()).await;
        let reason = match ended {
            Ok(Ok(status)) if status.success() => return Ok(()),
            Ok(status) => ExitReason::Exited(status.context("wait for", &path)?),
            Err(_) => {
                initdb.stop().await;
                ExitReason::TimedOut(self.deadline)
            }
        };
        Err(EmbeddedError::CreateFailed { reason, log: log.path().to_owned(), output: log.quote(mark) })
    }

    /// Every connection over the socket is trusted: only one user can enter its directory.
    fn arguments(&self, draft: &Path, locale: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["-D".into(), draft.into()];
        arguments.extend([
            format!("--username={}", self.name).into(),
            format!("--locale={locale}").into(),
            "--encoding=UTF8".into(),
            "--auth-local=trust".into(),
            "--auth-host=reject".into(),
            "--no-instructions".into(),
        ]);
        if !self.durable {
            arguments.push("--no-sync".into());
        }
        arguments
    }

    fn publish(&self, draft: &Path) -> Result<(), EmbeddedError> {
        let cluster = self.data.cluster();
        fs::rename(draft, &cluster).context("create", &cluster)?;
        let parent = self.data.path();
        File::open(parent).and_then(|folder| folder.sync_all()).context("write", parent)
    }
}
