//! The state of a check: the cost of the template so far, and the values of its expressions.

use std::collections::BTreeSet;

use super::cost::Bound;
use super::error::RenderError;

/// The maximum length of `true`, `false` and computed numbers when printed.
const WORD: u64 = 20;

/// A check in progress.
#[derive(Debug)]
pub(super) struct Check<'a, 'd> {
    /// The arguments.
    pub(super) declared: &'d BTreeSet<&'d str>,
    /// The maximum number of steps of a render.
    pub(super) fuel: u64,
    /// The variables of the loops around, the outermost first.
    pub(super) locals: Vec<Local<'a>>,
    /// How often the current statement runs.
    pub(super) rounds: u64,
    /// Steps of the engine so far, all branches and rounds together.
    pub(super) steps: u64,
    /// The bytes copied or compared so far in the innermost body, in one round.
    pub(super) bytes: Bound<'a>,
}

/// The variable of a loop.
#[derive(Debug)]
pub(super) struct Local<'a> {
    pub(super) name: &'a str,
    pub(super) shape: Shape<'a>,
}

/// The position of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// The bound on the output of `{{ … }}`, through filters and `~`.
    Output,
    /// Anywhere else.
    Inside,
}

/// The value of an expression, as far as the check needs it.
#[derive(Debug, Clone)]
pub(super) struct Shape<'a> {
    /// Its greatest length, printed.
    pub(super) size: Bound<'a>,
    /// Whether it is text for certain.
    pub(super) is_text: bool,
}

impl<'a> Shape<'a> {
    pub(super) fn text(size: Bound<'a>) -> Self {
        Self { size, is_text: true }
    }

    pub(super) fn word() -> Self {
        Self { size: Bound::fixed(WORD), is_text: false }
    }

    /// One or the other.
    pub(super) fn or(self, other: Self) -> Self {
        Self { size: self.size.or(other.size), is_text: self.is_text && other.is_text }
    }
}

impl<'a> Check<'a, '_> {
    /// Counts steps of the engine.
    pub(super) fn step(&mut self, steps: u64) -> Result<(), RenderError> {
        self.steps = self.steps.saturating_add(self.rounds.saturating_mul(steps));
        if self.steps < self.fuel { Ok(()) } else { Err(RenderError::TooMuchWork) }
    }

    /// Counts bytes that are copied or compared.
    pub(super) fn copy(&mut self, bytes: Bound<'a>) {
        self.bytes = std::mem::take(&mut self.bytes).plus(bytes);
    }
}
