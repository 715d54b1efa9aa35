//! Verification: reads every chain from its first to its last row, recomputes the hashes, and compares them
//! with the ledger and with checkpoints. Memory grows with the number of chains, not of rows.

mod chain_state;
mod entry;
mod gaps;
mod ledger;
mod report;
mod rows;
mod signatures;

use crate::model::audit::checkpoint::Checkpoint;
use crate::model::audit::encoding::micros;
use crate::model::audit::signature::PublicKey;
use crate::store::StoreError;
use crate::store::audit::scan::AuditScan;

use ledger::LedgerVerifier;
use rows::RowVerifier;
use signatures::{SignatureError, Signatures};

pub use report::Report;
pub use signatures::SignatureReport;

/// What the log is compared with.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Checkpoints made earlier.
    pub checkpoints: Vec<Checkpoint>,
    /// The trusted public keys; if empty, self-signed keys are accepted.
    pub trusted: Vec<PublicKey>,
}

/// Verifies the log.
///
/// # Errors
/// [`StoreError`] if the database cannot be read to the end.
pub async fn verify(scan: &mut AuditScan, evidence: &Evidence) -> Result<Report, StoreError> {
    let mut report = Report::default();
    let now = micros(scan.now().await?);
    let heads = scan.heads().await?;
    let known = evidence.checkpoints.iter().map(|checkpoint| checkpoint.ledger);
    let mut ledger = LedgerVerifier::new(known, &evidence.trusted, now);
    scan.ledger(|fields| ledger.read(fields)).await?;
    let (mut states, signatures) = ledger.finish(&heads);
    states.findings.drain(..).for_each(|finding| report.add(finding));
    check_checkpoints(&evidence.checkpoints, &signatures, &mut report);
    report.signatures = signatures.into_report();
    if report.signatures.since.is_none() && !evidence.trusted.is_empty() {
        report.add("ledger: no entry is signed, although trusted keys were given");
    }
    let mut verifier = RowVerifier::new(&states, &evidence.checkpoints, &mut report);
    scan.rows(|fields| verifier.row(fields)).await?;
    verifier.finish();
    report.unmoved = scan.outbox().await?;
    Ok(report)
}

/// Verifies the signatures of checkpoints.
fn check_checkpoints(checkpoints: &[Checkpoint], signatures: &Signatures, report: &mut Report) {
    for checkpoint in checkpoints {
        let error = match (checkpoint.is_authentic(), checkpoint.signer) {
            (Some(true), Some(key)) => {
                (!signatures.vouches_for(&key)).then_some(SignatureError::Untrusted(key))
            }
            (Some(_), _) => Some(SignatureError::Forged),
            (None, _) => {
                let since = signatures.since();
                since
                    .is_some_and(|since| since <= checkpoint.ledger.number)
                    .then_some(SignatureError::Unsigned)
            }
        };
        if let Some(error) = error {
            report.add(format!("checkpoint of {}: {error}", checkpoint.at));
        }
    }
}
