//! The files and directories that the settings name, and what a start requires of each. `serve`, `config check` and `doctor`
//! use this one list, so that none accepts what another refuses.

use std::fmt::Display;
use std::fs;

use super::directory::check_directory;
use super::{AppError, connection_keys, credentials, signing};
use crate::config::{CheckpointTarget, Settings};
use crate::server::tls;

/// A file or directory that is not as its setting requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    /// The setting.
    pub setting: &'static str,
    /// What is wrong.
    pub problem: String,
    /// Whether the gateway does not start. Otherwise it starts, and what the setting is for fails.
    pub prevents_start: bool,
}

impl Display for FileProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.setting, self.problem)
    }
}

/// Refuses a start without the files that the settings require, and logs the other problems.
///
/// # Errors
/// [`AppError::Files`], with a line for each problem.
pub(super) async fn require(settings: &Settings) -> Result<(), AppError> {
    let (fatal, other): (Vec<_>, Vec<_>) =
        problems(settings).await.into_iter().partition(|found| found.prevents_start);
    for FileProblem { setting, problem, .. } in other {
        tracing::warn!(setting, problem, "file or directory of a setting is not usable");
    }
    let lines: Vec<String> = fatal.iter().map(ToString::to_string).collect();
    if lines.is_empty() { Ok(()) } else { Err(AppError::Files(lines.join("\n"))) }
}

/// Checks the files and directories that the settings name, except those of the embedded database.
pub(super) async fn problems(settings: &Settings) -> Vec<FileProblem> {
    let Settings { server, admin, audit, sources, embedded, .. } = settings;
    let mut found = Problems::default();
    if let Some(files) = server.tls() {
        for (setting, problem) in tls::problems(&files).await {
            found.fatal(setting, Err::<(), _>(problem));
        }
    }
    if let Some(file) = &admin.operator_keys_file {
        found.fatal("admin.operator_keys_file", credentials::operator_keys(file));
    } else if settings.database.url.is_none() && admin.operator_keys().is_empty() {
        found.fatal("embedded.data_dir", credentials::read(&embedded.data_dir.join("operator.key")));
    }
    found.fatal("audit.signing_key_file", signing::check(settings));
    found.fatal("sources.key_file", connection_keys::check(settings));
    if let Some(directory) = &audit.spill_dir {
        found.fatal("audit.spill_dir", check_directory(directory));
    }
    if let Some(CheckpointTarget::Directory(directory)) = &audit.checkpoint_to {
        found.other("audit.checkpoint_to", check_directory(directory));
    }
    for root in &sources.file_roots {
        let read = fs::read_dir(root).map_err(|error| format!("{}: {error}", root.display()));
        found.other("sources.file_roots", read);
    }
    if let Some(directory) = &sources.cache_dir {
        found.other("sources.cache_dir", check_directory(directory));
    }
    found.0
}

#[derive(Default)]
struct Problems(Vec<FileProblem>);

impl Problems {
    fn fatal<T, E: Display>(&mut self, setting: &'static str, checked: Result<T, E>) {
        self.add(setting, checked, true);
    }

    fn other<T, E: Display>(&mut self, setting: &'static str, checked: Result<T, E>) {
        self.add(setting, checked, false);
    }

    fn add<T, E: Display>(&mut self, setting: &'static str, checked: Result<T, E>, prevents_start: bool) {
        let Err(error) = checked else { return };
        let text = error.to_string();
        // Some errors name their setting.
        let named = text.strip_prefix(setting).and_then(|rest| rest.strip_prefix(": "));
        let problem = named.unwrap_or(&text).to_owned();
        self.0.push(FileProblem { setting, problem, prevents_start });
    }
}
