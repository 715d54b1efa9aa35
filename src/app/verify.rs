//! `waggle audit verify`: the log of the configured database, read without the gateway.

use std::fmt::Write;

use super::AppError;
use super::embedded::existing_database;
use crate::audit::verify::{Evidence, Report, Signing, verify};
use crate::config::Settings;
use crate::model::audit::checkpoint::Checkpoint;
use crate::model::audit::signature::PublicKey;
use crate::store::StoreError;
use crate::store::audit::scan::Scan;

/// What verification says.
#[derive(Debug)]
pub struct Verdict {
    /// For people.
    pub text: String,
    /// Whether all is as it was written.
    pub sound: bool,
}

/// Verifies the audit log of the configured database, against checkpoints and keys that are trusted where there are any.
/// The private database is started for it, so that no gateway may be running on it; it is not created.
///
/// # Errors
/// When the database cannot be read to the end.
pub async fn verify_audit(
    settings: &Settings,
    checkpoints: Vec<Checkpoint>,
    trusted: Vec<PublicKey>,
) -> Result<Verdict, AppError> {
    let (options, embedded) = existing_database(settings).await?;
    let evidence = Evidence { checkpoints, trusted };
    let verified = async {
        let mut scan = Scan::begin(&options.listen).await?;
        let report = verify(&mut scan, &evidence).await?;
        scan.end().await?;
        Ok::<_, StoreError>(report)
    };
    let report = verified.await;
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    let schema = |error: StoreError| {
        if error.is_other_schema() { AppError::Schema(error) } else { error.into() }
    };
    let report = report.map_err(schema)?;
    Ok(Verdict { text: text(&report), sound: report.findings.is_empty() })
}

fn text(report: &Report) -> String {
    let Report { rows, chains, open, dropped, retain_days, quarantined, signing, unmoved, findings } = report;
    let mut text = String::new();
    // Writing to a text does not fail.
    for finding in findings {
        let _ = writeln!(text, "{finding}");
    }
    let (count, named) = quarantined;
    for (chain, seq) in named {
        let _ = writeln!(text, "chain {chain} row {seq} is quarantined: the database refused it");
    }
    if *count > named.len() {
        let _ = writeln!(text, "{} more rows are quarantined", count - named.len());
    }
    for (chain, seq) in open {
        let _ =
            writeln!(text, "chain {chain} is open at row {seq}: its gateway runs, or ended without a word");
    }
    if let (count @ 1.., Some(first)) = unmoved {
        let _ = writeln!(text, "{count} rows wait in the outbox, the first being {first}");
    }
    let _ = writeln!(text, "{}", signatures(signing));
    let dropped = match (dropped, retain_days) {
        (1.., Some(days)) => format!(", {dropped} dropped for their age, after {days} days at the least"),
        (1.., None) => format!(", {dropped} dropped for their age"),
        _ => String::new(),
    };
    let wrong =
        if findings.is_empty() { "nothing is wrong".to_owned() } else { format!("{} wrong", findings.len()) };
    let _ = writeln!(text, "{rows} rows in {chains} chains{dropped}: {wrong}");
    text
}

fn signatures(Signing { since, keys, compared }: &Signing) -> String {
    let Some(since) = since else {
        return "unsigned: whoever owns the database can rewrite what no checkpoint knows".to_owned();
    };
    if *compared {
        return format!("signed since entry {since} of the chain of chains, held against the trusted keys");
    }
    let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
    let keys = keys.join(", ");
    format!(
        "signed since entry {since} of the chain of chains, by {keys}; not held against trusted keys (--trust)"
    )
}
