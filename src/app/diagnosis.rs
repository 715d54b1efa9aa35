//! What `waggle doctor` finds.

use serde::Serialize;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, but wants attention.
    Warn,
    /// Prevents the gateway from working.
    Fail,
}

/// A check.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// The result.
    pub status: Status,
    /// What was checked: a setting or a dependency.
    pub check: &'static str,
    /// What was found.
    pub message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
}

/// All checks.
#[derive(Debug, Default, Serialize)]
pub struct Diagnosis {
    /// The checks, in their order.
    pub checks: Vec<Finding>,
}

impl Diagnosis {
    /// Whether nothing prevents the gateway from working.
    pub fn is_healthy(&self) -> bool {
        self.checks.iter().all(|found| found.status != Status::Fail)
    }

    pub(super) fn ok(&mut self, check: &'static str, message: impl Into<String>) {
        self.checks.push(Finding { status: Status::Ok, check, message: message.into(), remedy: None });
    }

    pub(super) fn warn(&mut self, check: &'static str, message: impl Into<String>, remedy: &'static str) {
        let message = message.into();
        self.checks.push(Finding { status: Status::Warn, check, message, remedy: Some(remedy) });
    }

    pub(super) fn fail(&mut self, check: &'static str, message: impl Into<String>, remedy: &'static str) {
        let message = message.into();
        self.checks.push(Finding { status: Status::Fail, check, message, remedy: Some(remedy) });
    }

    /// A warning if a condition holds.
    pub(super) fn judge(&mut self, check: &'static str, bad: bool, message: String, remedy: &'static str) {
        if bad { self.warn(check, message, remedy) } else { self.ok(check, message) }
    }
}
