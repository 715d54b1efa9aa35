//! `waggle doctor`: checks what a gateway with these settings depends on.

use std::fmt::Write;

use clap::Args;

use super::invocation::Invocation;
use super::output::{Failure, print};
use super::runtime;
use crate::app::{self, DiagnosedAt, Diagnosis, Finding, Status};
use crate::config::{Purpose, Settings};

#[derive(Args)]
pub(super) struct Doctor {
    /// Print the checks as JSON.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(super) fn run(&self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let diagnosis = diagnose(&invocation.load(Purpose::Serve)?.settings, DiagnosedAt::AnyTime)?;
        if self.json {
            print(&format!("{}\n", serde_json::to_string_pretty(&diagnosis)?))?;
        } else {
            print(&text(&diagnosis))?;
        }
        if diagnosis.is_healthy() { Ok(()) } else { Err(Failure::Unhealthy) }
    }
}

/// Checks everything that a gateway with these settings depends on.
pub(super) fn diagnose(settings: &Settings, at: DiagnosedAt) -> Result<Diagnosis, Failure> {
    runtime::run(app::diagnose(settings, at))
}

/// The checks for people, a line each.
pub(super) fn text(diagnosis: &Diagnosis) -> String {
    let width = diagnosis.checks.iter().map(|found| found.check.len()).max().unwrap_or_default();
    let mut text = String::new();
    for Finding { status, check, message, remedy } in &diagnosis.checks {
        let status = match status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "fail",
        };
        // Writing to a string does not fail.
        let _ = write!(text, "{status:<4}  {check:<width$}  {message}");
        let _ = match remedy {
            Some(remedy) => writeln!(text, "; {remedy}"),
            None => writeln!(text),
        };
    }
    text
}
