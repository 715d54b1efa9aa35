//! The limits of a template and of rendering.

use std::time::Duration;

use super::cost::Plan;
use super::error::RenderError;

/// The maximum number of operators, filters and brackets in one tag. Each may be a level of recursion in the engine.
pub(super) const MAX_OPERATORS: usize = 64;

/// The maximum nesting of brackets, each a dozen calls deep in the engine's parser.
pub(super) const MAX_BRACKETS: usize = 8;

/// The maximum nesting of blocks.
pub(super) const MAX_BLOCKS: usize = 12;

/// The maximum number of `elif` of all open blocks: the engine parses each within the one before.
pub(super) const MAX_BRANCHES: usize = 64;

/// The limits of one answer, whether it renders one template or the messages of one prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderLimits {
    /// The maximum length of the rendered text, in bytes.
    pub output_bytes: usize,
    /// The maximum number of bytes that rendering copies and compares on the worst path through the template. It bounds
    /// the memory of a render and, with `fuel`, its time.
    pub work_bytes: u64,
    /// The maximum number of steps of the engine, also on the worst path.
    pub fuel: u32,
}

impl Default for RenderLimits {
    fn default() -> Self {
        Self { output_bytes: 1 << 20, work_bytes: 32 << 20, fuel: 10_000 }
    }
}

/// The limits of the renders of a process.
#[derive(Debug, Clone, Copy)]
pub struct RendererLimits {
    /// The maximum number of concurrent renders, each on a thread.
    pub at_once: usize,
    /// The maximum number of renders that wait for a permit; further ones are refused.
    pub waiting: usize,
    /// The timeout of waiting for a permit.
    pub wait: Duration,
    /// The timeout of a render for its caller.
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
