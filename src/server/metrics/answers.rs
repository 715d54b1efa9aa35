//! Counts the answers of each surface by the class of their status.

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

use crate::server::routes::{Document, Surface};
use crate::telemetry::exposition::{Exposition, Kind};

const SURFACES: [&str; 6] = ["mcp", "admin", "health", "metrics", "metadata", "unknown"];
/// The gateway sends no informational answers.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Counts answers.
#[derive(Debug, Default)]
pub(crate) struct AnswerMeter([[AtomicU64; CLASSES.len()]; SURFACES.len()]);

impl AnswerMeter {
    /// Counts an answer of the surface that a path belongs to.
    pub(in crate::server) fn count(&self, surface: Surface, status: StatusCode) {
        let number = match surface {
            Surface::Mcp => 0,
            Surface::Admin => 1,
            Surface::Alive | Surface::Ready => 2,
            Surface::Document(Document::Metrics) => 3,
            Surface::Document(Document::WellKnown) => 4,
            Surface::Document(Document::Unknown) => 5,
        };
        let class = usize::from(status.as_u16() / 100).saturating_sub(2);
        if let Some(counter) = self.0.get(number).and_then(|classes| classes.get(class)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn render(&self, out: &mut Exposition) {
        let help = "Answers by surface and class of their HTTP status.";
        let mut family = out.family("waggle_http_answers_total", Kind::Counter, help);
        for (surface, classes) in SURFACES.iter().zip(&self.0) {
            for (class, counter) in CLASSES.iter().zip(classes) {
                let labels = [("surface", *surface), ("status", *class)];
                family.sample(&labels, counter.load(Ordering::Relaxed));
            }
        }
    }
}
