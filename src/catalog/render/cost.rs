//! The worst-case cost of a template, as a formula over the lengths of its values.

use std::collections::BTreeMap;

/// An upper bound in bytes: a constant, and for each name a factor of the length of its value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bound<'a> {
    fixed: u64,
    names: BTreeMap<&'a str, u64>,
}

impl<'a> Bound<'a> {
    pub(super) fn fixed(bytes: u64) -> Self {
        Self { fixed: bytes, names: BTreeMap::new() }
    }

    pub(super) fn length(text: &str) -> Self {
        Self::fixed(text.len() as u64)
    }

    pub(super) fn name(name: &'a str) -> Self {
        Self { fixed: 0, names: BTreeMap::from([(name, 1)]) }
    }

    /// Nothing, but that the value is used.
    pub(super) fn mention(name: &'a str) -> Self {
        Self { fixed: 0, names: BTreeMap::from([(name, 0)]) }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        self.merge(other, u64::saturating_add)
    }

    /// The bound of both together: the maximum of each term.
    pub(super) fn or(self, other: Self) -> Self {
        self.merge(other, u64::max)
    }

    pub(super) fn times(mut self, factor: u64) -> Self {
        self.fixed = self.fixed.saturating_mul(factor);
        self.names.values_mut().for_each(|times| *times = times.saturating_mul(factor));
        self
    }

    /// The bound of the shorter one: the one that depends on no value, if there is one.
    pub(super) fn shorter<'b>(&'b self, other: &'b Self) -> &'b Self {
        if other.names.is_empty() { other } else { self }
    }

    /// The formula, with every value that is used copied once into the engine.
    pub(super) fn into_plan(self, steps: u64) -> Plan {
        let copied = |(name, times): (&str, u64)| (name.into(), times.saturating_add(1));
        Plan { steps, fixed: self.fixed, arguments: self.names.into_iter().map(copied).collect() }
    }

    /// The smaller one is merged into the larger one, so that adding many small parts is fast.
    fn merge(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        let (mut large, small) =
            if self.names.len() < other.names.len() { (other, self) } else { (self, other) };
        large.fixed = with(large.fixed, small.fixed);
        for (name, times) in small.names {
            let sum = large.names.entry(name).or_default();
            *sum = with(*sum, times);
        }
        large
    }
}

/// The worst-case cost of one render of a template.
#[derive(Debug)]
pub(super) struct Plan {
    /// Steps of the engine.
    pub(super) steps: u64,
    /// Bytes that do not depend on the values.
    pub(super) fixed: u64,
    /// The arguments that are used, in order, and how many bytes each byte of their values adds.
    arguments: Box<[(Box<str>, u64)]>,
}

impl Plan {
    /// The arguments that are used, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().map(|(name, _)| &**name)
    }

    /// The values of the arguments that are used, in the order of these.
    pub(super) fn arguments<'v>(&self, values: &'v [(impl AsRef<str>, impl AsRef<str>)]) -> Vec<&'v str> {
        let mut given = vec![""; self.arguments.len()];
        for (name, value) in values {
            if let Ok(found) = self.arguments.binary_search_by(|(used, _)| (**used).cmp(name.as_ref())) {
                given[found] = value.as_ref();
            }
        }
        given
    }

    /// How many bytes a render with these values copies and compares at the worst.
    pub(super) fn bytes(&self, given: &[&str]) -> u64 {
        let each = self
            .arguments
            .iter()
            .zip(given)
            .map(|((_, times), value)| times.saturating_mul(value.len() as u64));
        each.fold(self.fixed, u64::saturating_add)
    }
}
