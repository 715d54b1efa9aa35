//! The result of a verification.

use std::fmt;

use uuid::Uuid;

use super::signatures::SignatureReport;

/// Maximum number of findings and quarantined rows listed.
pub(super) const MAX_FINDINGS: usize = 100;

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Number of rows.
    pub rows: u64,
    /// Number of chains.
    pub chains: usize,
    /// The open chains, each with its last row.
    pub open: Vec<(Uuid, i64)>,
    /// Number of rows dropped because they expired.
    pub dropped: i64,
    /// The shortest retention applied, in days.
    pub retain_days: Option<i32>,
    /// Result of verifying the signatures.
    pub signatures: SignatureReport,
    /// Number of quarantined rows, and the first of them. Their positions and hashes are in the ledger.
    pub quarantined: (usize, Vec<(Uuid, i64)>),
    /// Number of rows in the outbox, and the first of them.
    pub unmoved: (i64, Option<Uuid>),
    /// Inconsistencies, of each chain the first.
    pub findings: Vec<String>,
}

impl Report {
    /// Adds a finding, unless there are too many.
    pub(super) fn add(&mut self, finding: impl fmt::Display) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding.to_string());
        }
    }
}
