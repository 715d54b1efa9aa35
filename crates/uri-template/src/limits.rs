//! Bounds on the size of a template and on the work of comparing templates.

/// The maximum length of a template, in bytes.
pub const MAX_TEMPLATE_BYTES: usize = 512;

/// How many pairs of pattern positions all comparisons of one [`ConflictChecker`](crate::ConflictChecker) may visit
/// together, at about ten nanoseconds each. Two templates that differ in their literal text need about as many visits as
/// the text is long up to the difference.
pub(crate) const MAX_VISITS: usize = 10_000_000;

// A single comparison is always within the bound.
const _: () = assert!(MAX_VISITS > (2 * MAX_TEMPLATE_BYTES).pow(2));
