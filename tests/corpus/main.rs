//! The recorded corpus: requests to the built binary, each with its whole answer. An answer that differs from the
//! recorded one fails the test; `make corpus` records all answers anew, so that a change of behavior is a diff to review.
//!
//! `CORPUS_BINARY` names another binary to compare with the recorded answers, such as the build before a change.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test panics, its helpers too")]
#![expect(
    clippy::pedantic,
    reason = "tables of cases are clearer without the changes that these lints require"
)]

mod case;
mod cases;
#[path = "../it/support/cluster/mod.rs"]
#[expect(dead_code, reason = "shared with the other tests, which use more of it")]
mod cluster;
mod gateway;
mod normalize;
mod recording;

use std::collections::BTreeSet;

use crate::case::Case;
use crate::gateway::Gateway;
use crate::normalize::Variables;

/// The minimum number of different requests.
const MIN_REQUESTS: usize = 2_000;
/// Differences that are printed in full.
const MAX_PRINTED: usize = 20;
/// Set to record the answers instead of comparing them.
const RECORD: &str = "CORPUS_RECORD";

#[tokio::test]
async fn answers_are_those_recorded() {
    let groups = cases::all();
    assert_names_and_requests_differ(&groups);
    let gateway = Gateway::start().await;
    let mut variables = Variables::new(gateway.operator());
    let recording = std::env::var_os(RECORD).is_some();
    let (mut differences, mut compared) = (Vec::new(), 0);
    for (group, cases) in &groups {
        let mut lines = Vec::new();
        for case in cases {
            let answer = gateway.send(case, &variables).await;
            variables.capture(case, &answer);
            lines.push(recording::line(case, &variables.normalize(answer)));
        }
        compared += lines.len();
        if recording {
            recording::write(group, &lines);
        } else {
            differences.extend(recording::differences(group, &lines));
        }
    }
    let shown = differences.iter().take(MAX_PRINTED).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        differences.is_empty(),
        "{} of {compared} answers differ from those recorded; where that is intended, record them with \
         `make corpus` and review the difference.\n{shown}",
        differences.len(),
    );
}

/// Names of cases are unique within their group, and there are enough different requests.
fn assert_names_and_requests_differ(groups: &[(&str, Vec<Case>)]) {
    let (mut names, mut twice, mut requests) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
    for (group, cases) in groups {
        for case in cases {
            if !names.insert((group, &case.name)) {
                twice.push(format!("{group}: {}", case.name));
            }
            requests.insert(case.request());
        }
    }
    assert!(twice.is_empty(), "names of several cases: {twice:#?}");
    assert!(requests.len() >= MIN_REQUESTS, "only {} different requests", requests.len());
}
