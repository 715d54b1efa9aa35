//! The audience of a change: the callers who see what it changes, before it or after it. No other caller is notified.

use super::label::{CallerLabels, Labels};

/// The callers whom a change concerns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Audience {
    /// Every caller who may use the agent.
    #[default]
    Everybody,
    /// Callers with one of these labels.
    Labels(Labels),
}

impl Audience {
    /// The audience of a change of a definition with these labels before and after; `None` where it does not exist.
    pub fn of_change(before: Option<&Labels>, after: Option<&Labels>) -> Self {
        let states = [before, after].into_iter().flatten();
        states.map(Self::of).reduce(Self::or).unwrap_or_default()
    }

    /// The callers who see a definition with these labels.
    pub fn of(labels: &Labels) -> Self {
        if labels.is_empty() { Self::Everybody } else { Self::Labels(labels.clone()) }
    }

    /// Both audiences together.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Labels(one), Self::Labels(other)) if one == other => Self::Labels(one),
            (Self::Labels(one), Self::Labels(other)) => {
                Self::Labels(one.iter().chain(other.iter()).cloned().collect::<Labels>())
            }
            _ => Self::Everybody,
        }
    }

    /// Whether callers with these labels are part of it.
    pub fn includes(&self, caller: &CallerLabels) -> bool {
        match (self, caller) {
            (Self::Everybody, _) | (_, CallerLabels::Everything) => true,
            (Self::Labels(labels), CallerLabels::These(own)) => labels.intersects(own),
        }
    }

    /// Its labels; `None` for everybody.
    pub fn labels(&self) -> Option<&Labels> {
        match self {
            Self::Everybody => None,
            Self::Labels(labels) => Some(labels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Audience;
    use crate::model::label::{CallerLabels, Labels};

    fn labels(texts: &[&str]) -> Labels {
        Labels::parse(texts.iter().copied()).unwrap()
    }

    #[test]
    fn audience_has_those_who_see_the_definition_before_or_after() {
        let none = labels(&[]);
        let (a, b, both) = (labels(&["a"]), labels(&["b"]), labels(&["a", "b"]));
        for (before, after, audience) in [
            (None, Some(&none), Audience::Everybody),
            (Some(&none), Some(&a), Audience::Everybody),
            (Some(&a), Some(&none), Audience::Everybody),
            (Some(&none), None, Audience::Everybody),
            (None, Some(&a), Audience::Labels(a.clone())),
            (Some(&a), None, Audience::Labels(a.clone())),
            (Some(&a), Some(&a), Audience::Labels(a.clone())),
            (Some(&a), Some(&b), Audience::Labels(both)),
        ] {
            assert_eq!(Audience::of_change(before, after), audience, "{before:?} {after:?}");
        }
    }

    #[test]
    fn audience_includes_callers_with_one_of_its_labels() {
        let audience = Audience::Labels(labels(&["a", "b"]));
        let these = |texts: &[&str]| CallerLabels::These(labels(texts));
        assert!(audience.includes(&CallerLabels::Everything) && audience.includes(&these(&["b", "c"])));
        assert!(!audience.includes(&these(&["c"])) && !audience.includes(&these(&[])));
        assert!(Audience::Everybody.includes(&these(&[])));
    }
}
