//! `waggle audit verify`: the log of the configured database, read without the gateway.

use std::fmt::Write;

use super::{AppError, database};
use crate::audit::verify::{Report, verify};
use crate::config::Settings;
use crate::model::audit::checkpoint::Checkpoint;
use crate::store::audit::scan::Scan;

/// What verification says.
#[derive(Debug)]
pub struct Verdict {
    /// For people.
    pub text: String,
    /// Whether all is as it was written.
    pub sound: bool,
}

/// Verifies the audit log of the configured database, against a checkpoint where there is one. The private database is
/// started for it, so that no gateway may be running on it.
///
/// # Errors
/// When the database cannot be read to the end.
pub async fn verify_audit(settings: &Settings, checkpoint: Option<Checkpoint>) -> Result<Verdict, AppError> {
    let (options, embedded) = database(settings).await?;
    let verified = async {
        let mut scan = Scan::begin(&options.listen).await?;
        let report = verify(&mut scan, checkpoint.as_ref()).await?;
        scan.end().await?;
        Ok::<_, AppError>(report)
    };
    let report = verified.await;
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    let report = report?;
    Ok(Verdict { text: text(&report), sound: report.findings.is_empty() })
}

fn text(report: &Report) -> String {
    let Report { rows, chains, open, dropped, unmoved, findings } = report;
    let mut text = String::new();
    // Writing to a text does not fail.
    for finding in findings {
        let _ = writeln!(text, "{finding}");
    }
    for (chain, seq) in open {
        let _ =
            writeln!(text, "chain {chain} is open at row {seq}: its gateway runs, or ended without a word");
    }
    if let (count @ 1.., Some(first)) = unmoved {
        let _ = writeln!(text, "{count} rows wait in the outbox, the first being {first}");
    }
    let dropped = if *dropped > 0 { format!(", {dropped} dropped for their age") } else { String::new() };
    let wrong =
        if findings.is_empty() { "nothing is wrong".to_owned() } else { format!("{} wrong", findings.len()) };
    let _ = writeln!(text, "{rows} rows in {chains} chains{dropped}: {wrong}");
    text
}
