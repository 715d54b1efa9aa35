//! Creates the database cluster, once and whole.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::USER;
use super::error::{Doing, EmbeddedError, Ending};
use super::folder::{DataFolder, remove_draft};
use super::guardian::{Guardian, Program};
use super::programs::Programs;

/// The first that the system has. Both order text by its bytes; the first also knows letters beyond ASCII.
const LOCALES: [&str; 2] = ["C.UTF-8", "C"];

/// What `initdb` needs to know.
#[derive(Debug)]
pub(super) struct Creation<'a> {
    pub(super) data: &'a DataFolder,
    pub(super) programs: &'a Programs,
    pub(super) guardian: &'a Guardian,
    pub(super) durable: bool,
    pub(super) deadline: Duration,
}

impl Creation<'_> {
    /// Makes the cluster under another name and renames it when it is complete, so that a gateway that is
    /// killed meanwhile leaves nothing that the next one takes for a cluster.
    pub(super) async fn run(&self) -> Result<(), EmbeddedError> {
        let draft = self.data.draft();
        let result = self.fill(&draft).await.and_then(|()| self.publish(&draft));
        if result.is_err() {
            remove_draft(&draft);
        }
        result
    }

    async fn fill(&self, draft: &Path) -> Result<(), EmbeddedError> {
        DirBuilder::new().mode(0o700).create(draft).doing("create", draft)?;
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
        let path = self.programs.initdb();
        let program = Program {
            path: &path,
            arguments: self.arguments(draft, locale),
            environment: Vec::new(),
            folder: draft,
            socket: None,
        };
        let log = &self.guardian.log;
        let mark = log.end();
        let mut initdb = self.guardian.spawn(&program).doing("run", &path)?;
        let ended = timeout(self.deadline, initdb.wait()).await;
        let how = match ended {
            Ok(Ok(status)) if status.success() => return Ok(()),
            Ok(status) => Ending::Exited(status.doing("wait for", &path)?),
            Err(_) => {
                initdb.end().await;
                Ending::TimedOut(self.deadline)
            }
        };
        Err(EmbeddedError::CreateFailed { how, log: log.path().to_owned(), output: log.quote(mark) })
    }

    /// Anyone who can open the socket is let in: its folder is open to one user alone.
    fn arguments(&self, draft: &Path, locale: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["-D".into(), draft.into()];
        arguments.extend([
            format!("--username={USER}").into(),
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
        fs::rename(draft, &cluster).doing("create", &cluster)?;
        let parent = self.data.path();
        File::open(parent).and_then(|folder| folder.sync_all()).doing("write", parent)
    }
}
