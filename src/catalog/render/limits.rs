//! The bounds of a template and of rendering.

use std::time::Duration;

use super::cost::Plan;
use super::error::RenderError;

/// How many operators, filters and brackets one tag may hold. Each may be a level of recursion in the engine.
pub(super) const MAX_OPERATORS: usize = 64;

/// How many brackets may be open at once, each a dozen calls deep in the engine's parser.
pub(super) const MAX_BRACKETS: usize = 8;

/// How many blocks may be open at once.
pub(super) const MAX_BLOCKS: usize = 12;

/// How many `elif` the open blocks may have together: the engine parses each within the one before.
pub(super) const MAX_BRANCHES: usize = 64;

/// The limits of one answer, whether it renders one template or the messages of one prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderLimits {
    /// How long the rendered text may be, in bytes.
    pub output_bytes: usize,
    /// How much rendering may copy and compare, in bytes, on the worst path through the template. It bounds the memory
    /// a render takes, and with `fuel` its time.
    pub work_bytes: u64,
    /// How many steps the engine may take, again on the worst path.
    pub fuel: u32,
}

impl Default for RenderLimits {
    fn default() -> Self {
        Self { output_bytes: 1 << 20, work_bytes: 32 << 20, fuel: 10_000 }
    }
}

/// The bounds of the renders of a process.
#[derive(Debug, Clone, Copy)]
pub struct RendererLimits {
    /// How many renders run at once, each on a thread.
    pub at_once: usize,
    /// How many more wait for a place; past it they are refused.
    pub waiting: usize,
    /// How long a render waits for a place.
    pub wait: Duration,
    /// How long a render may run before its caller gets a timeout.
    pub deadline: Duration,
    /// The limits of one answer.
    pub answer: RenderLimits,
}

impl Default for RendererLimits {
    fn default() -> Self {
        Self {
            at_once: 4,
            waiting: 256,
            wait: Duration::from_secs(1),
            deadline: Duration::from_secs(2),
            answer: RenderLimits::default(),
        }
    }
}

/// The remaining limits of one answer.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) limits: RenderLimits,
    pub(super) output_bytes: usize,
    work_bytes: u64,
    steps: u64,
}

impl Budget {
    pub(super) fn of(limits: &RenderLimits) -> Self {
        Self {
            limits: *limits,
            output_bytes: limits.output_bytes,
            work_bytes: limits.work_bytes,
            // The engine stops at the step that would leave nothing.
            steps: u64::from(limits.fuel).saturating_sub(1),
        }
    }

    /// Subtracts the worst-case cost of a render before it starts.
    pub(super) fn spend(&mut self, plan: &Plan, bytes: u64) -> Result<(), RenderError> {
        self.steps = self.steps.checked_sub(plan.steps).ok_or(RenderError::TooMuchWork)?;
        let short =
            if plan.fixed > self.work_bytes { RenderError::TooMuchWork } else { RenderError::ValuesTooLong };
        self.work_bytes = self.work_bytes.checked_sub(bytes).ok_or(short)?;
        Ok(())
    }
}
