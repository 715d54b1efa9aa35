//! Templates of which no two conflict, compared with bounded work.

use std::collections::HashMap;

use super::overlap::{Pattern, Specificity};
use super::{MAX_TEMPLATE_BYTES, UriTemplate};

/// How many pairs of places in two templates all comparisons may look at together, at some ten nanoseconds each. Of
/// templates that differ in their literal text, two take about as many as the text is long up to where they differ.
const MOST_LOOKS: usize = 10_000_000;

// One comparison is always within the bound.
const _: () = assert!(MOST_LOOKS > (2 * MAX_TEMPLATE_BYTES).pow(2));

/// A set of templates of which no two [conflict](UriTemplate::conflicts_with).
pub struct Distinct<'t> {
    /// Only those that are equally specific can conflict.
    by_specificity: HashMap<Specificity, Vec<(&'t UriTemplate, Pattern)>>,
    looks: usize,
}

/// Why a template does not join others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Some URI matches both, and neither is more specific.
    #[error("conflicts with {0}: some URI matches both, and neither has more literal text")]
    With(UriTemplate),
    /// It takes too long to find out.
    #[error("is too much like other templates to be told from them; give them more literal text")]
    TooAlike,
}

impl Default for Distinct<'_> {
    fn default() -> Self {
        Self { by_specificity: HashMap::new(), looks: MOST_LOOKS }
    }
}

impl<'t> Distinct<'t> {
    /// Takes in a template that is known to conflict with none so far.
    pub fn trust(&mut self, template: &'t UriTemplate) {
        let alike = self.by_specificity.entry(template.specificity()).or_default();
        alike.push((template, template.0.layout.pattern()));
    }

    /// Takes in a template that conflicts with none so far.
    ///
    /// # Errors
    /// [`Conflict`] where it does, or where all comparisons so far are too much work.
    pub fn add(&mut self, template: &'t UriTemplate) -> Result<(), Conflict> {
        let pattern = template.0.layout.pattern();
        let alike = self.by_specificity.entry(template.specificity()).or_default();
        for (other, others) in alike.iter() {
            match pattern.overlaps(others, &mut self.looks) {
                Some(false) => {}
                Some(true) => return Err(Conflict::With((*other).clone())),
                None => return Err(Conflict::TooAlike),
            }
        }
        alike.push((template, pattern));
        Ok(())
    }
}

impl std::fmt::Debug for Distinct<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Distinct").field("looks", &self.looks).finish_non_exhaustive()
    }
}
