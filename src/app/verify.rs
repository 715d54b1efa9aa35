//! `waggle audit verify`: verifies the audit log of the configured database, without a gateway.

use std::fmt::Write;

use super::AppError;
use super::embedded::existing_database;
use crate::audit::verify::{Evidence, Report, SignatureReport, verify};
use crate::config::Settings;
use crate::model::audit::checkpoint::Checkpoint;
use crate::model::audit::signature::PublicKey;
use crate::store::StoreError;
use crate::store::audit::scan::AuditScan;

/// Result of a verification.
#[derive(Debug)]
pub struct Verdict {
    /// A report for people.
    pub text: String,
    /// Whether there are no findings.
    pub sound: bool,
}

/// Verifies the audit log of the configured database, with checkpoints and trusted keys if given. An embedded database
/// is started for it, so that no gateway may be running on it; it is not created.
///
/// # Errors
/// If the database cannot be read to the end.
pub async fn verify_audit(
    settings: &Settings,
    checkpoints: Vec<Checkpoint>,
    trusted: Vec<PublicKey>,
) -> Result<Verdict, AppError> {
    let (options, embedded) = existing_database(settings).await?;
    let evidence = Evidence { checkpoints, trusted };
    let verified = async {
        let mut scan = AuditScan::begin(&options.listen).await?;
        let report = verify(&mut scan, &evidence).await?;
        scan.end().await?;
        Ok::<_, StoreError>(report)
    };
    let report = verified.await;
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    let schema = |error: StoreError| {
        if error.is_schema_mismatch() { AppError::Schema(error) } else { error.into() }
    };
    let report = report.map_err(schema)?;
    Ok(Verdict { text: text(&report), sound: report.findings.is_empty() })
}

fn text(report: &Report) -> String {
    let Report { rows, chains, open, dropped, retain_days, quarantined, signatures, unmoved, findings } =
        report;
    let mut text = String::new();
    // Writing to a text does not fail.
    for finding in findings {
        let _ = writeln!(text, "{finding}");
    }
    let (count, named) = quarantined;
    for (chain, seq) in named {
        let _ = writeln!(text, "chain {chain} row {seq} is quarantined: the database rejected it");
    }
    if *count > named.len() {
        let _ = writeln!(text, "{} more rows are quarantined", count - named.len());
    }
    for (chain, seq) in open {
        let _ =
            writeln!(text, "chain {chain} is open at row {seq}: its gateway is running or exited uncleanly");
    }
    if let (count @ 1.., Some(first)) = unmoved {
        let _ = writeln!(text, "{count} rows are in the outbox; the oldest is {first}");
    }
    let _ = writeln!(text, "{}", signature_summary(signatures));
    let dropped = match (dropped, retain_days) {
        (1.., Some(days)) => format!(", {dropped} expired after at least {days} days"),
        (1.., None) => format!(", {dropped} expired"),
        _ => String::new(),
    };
    let result = match findings.len() {
        0 => "intact".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    };
    let (of_rows, of_chains) = (if *rows == 1 { "" } else { "s" }, if *chains == 1 { "" } else { "s" });
    let _ = writeln!(text, "{rows} row{of_rows} in {chains} chain{of_chains}{dropped}: {result}");
    text
}

fn signature_summary(SignatureReport { since, keys, against_trusted }: &SignatureReport) -> String {
    let Some(since) = since else {
        return "unsigned: the owner of the database can rewrite all rows that no checkpoint covers"
            .to_owned();
    };
    if *against_trusted {
        return format!("signed since ledger entry {since}, verified with the trusted keys");
    }
    let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
    let keys = keys.join(", ");
    format!("signed since ledger entry {since}, by {keys}; not compared with trusted keys (--trust)")
}
