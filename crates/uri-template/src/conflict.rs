//! Finds templates that conflict: equally specific, with a URI that matches both.

use std::collections::HashMap;

use crate::limits::MAX_VISITS;
use crate::overlap::{Pattern, Specificity};
use crate::template::UriTemplate;

/// A set of templates of which no two [conflict](UriTemplate::conflicts_with), compared with bounded work.
pub struct ConflictChecker<'t> {
    /// Only equally specific templates can conflict.
    by_specificity: HashMap<Specificity, Vec<(&'t UriTemplate, Pattern)>>,
    /// How many more pairs of positions may be visited.
    visits: usize,
}

/// Why a template is not added to a set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Some URI matches both templates, and neither is more specific.
    #[error("conflicts with {0}: some URI matches both, and neither has more literal text")]
    With(UriTemplate),
    /// The comparison exceeds the bound on work.
    #[error(
        "is too similar to other templates to be compared with them in bounded time; give them more literal text"
    )]
    TooSimilar,
}

impl Default for ConflictChecker<'_> {
    fn default() -> Self {
        Self { by_specificity: HashMap::new(), visits: MAX_VISITS }
    }
}

impl<'t> ConflictChecker<'t> {
    /// Adds a template that is known not to conflict with those added before, without comparing it.
    pub fn insert_unchecked(&mut self, template: &'t UriTemplate) {
        let equals = self.by_specificity.entry(template.specificity()).or_default();
        equals.push((template, template.pattern()));
    }

    /// Adds a template that conflicts with none of those added before.
    ///
    /// # Errors
    /// [`Conflict::With`] the first template that it conflicts with; [`Conflict::TooSimilar`] if all comparisons of
    /// this checker together would exceed their bound.
    pub fn insert(&mut self, template: &'t UriTemplate) -> Result<(), Conflict> {
        let pattern = template.pattern();
        let equals = self.by_specificity.entry(template.specificity()).or_default();
        for (other, other_pattern) in equals.iter() {
            match pattern.overlaps(other_pattern, &mut self.visits) {
                Some(false) => {}
                Some(true) => return Err(Conflict::With((*other).clone())),
                None => return Err(Conflict::TooSimilar),
            }
        }
        equals.push((template, pattern));
        Ok(())
    }
}

impl UriTemplate {
    /// Whether the two templates are equally specific and some URI may match both, so that neither takes precedence.
    ///
    /// The comparison considers which characters may occur where, not which values they decode to or how often a
    /// parameter occurs: it may report a conflict although no URI matches both, and never misses one. Takes time in the
    /// product of both lengths at most; [`ConflictChecker`] bounds the work for many templates.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let mut checker = ConflictChecker::default();
        checker.insert_unchecked(self);
        checker.insert(other).is_err()
    }
}

impl std::fmt::Debug for ConflictChecker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConflictChecker").field("visits", &self.visits).finish_non_exhaustive()
    }
}
