//! Which of two templates goes first, and whether some URI matches both.

use super::class::Class;
use super::layout::{Layout, Slot};

/// How specific a template is: the greater goes first.
///
/// More literal bytes are more specific: those outside the expressions, and those that `{/a}`, `{.a}` and
/// `{a,b}` write before each value. Of two with as many, the one without `{+…}` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Specificity {
    literal_bytes: usize,
    has_no_reserved_value: bool,
}

/// A step of a template read as a pattern. It may allow more than the template, never less.
enum Step {
    /// One of these.
    One(Class),
    /// Any number of these.
    Any(Class),
    /// Either the following steps or, in their place, nothing.
    Maybe(usize),
}

impl Layout {
    pub(super) fn specificity(&self) -> Specificity {
        let separators: usize = self.separators.iter().map(|separator| separator.text.len()).sum();
        let suffixes: usize = self.slots.iter().map(|slot| slot.suffix.len()).sum();
        Specificity {
            literal_bytes: self.head.len() + separators + suffixes + self.tail.len(),
            has_no_reserved_value: !self.slots.iter().any(|slot| slot.value.is_some_and(|v| v.reserved)),
        }
    }

    pub(super) fn pattern(&self) -> Pattern {
        Pattern(self.steps())
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        literal(&self.head, &mut steps);
        for (at, slot) in self.slots.iter().enumerate() {
            if let Some(separator) = at.checked_sub(1).and_then(|before| self.separators.get(before)) {
                literal(&separator.text, &mut steps);
            }
            self.slot_steps(slot, &mut steps);
        }
        literal(&self.tail, &mut steps);
        if let Some(fragment) = &self.fragment {
            let value = fragment.accepts.and(Class::ENCODED);
            steps.extend([Step::Maybe(2), Step::One(Class::only('#')), Step::Any(value)]);
        }
        steps
    }

    fn slot_steps(&self, slot: &Slot, steps: &mut Vec<Step>) {
        if let Some(value) = &slot.value {
            let value = value.accepts.and(Class::ENCODED);
            steps.extend([Step::One(value), Step::Any(value)]);
        }
        literal(&slot.suffix, steps);
        if !slot.parameters.is_empty() {
            let text =
                slot.parameters.iter().fold(slot.delimiters.and(Class::only('=')), |text, parameter| {
                    let name = Class::of(self.names[parameter.variable.index].as_bytes());
                    text.and(name).and(parameter.variable.accepts).and(Class::ENCODED)
                });
            steps.extend([Step::Maybe(2), Step::One(slot.leads), Step::Any(text)]);
        }
    }
}

fn literal(text: &str, steps: &mut Vec<Step>) {
    steps.extend(text.bytes().map(|byte| Step::One(Class::of(&[byte]))));
}

impl Step {
    /// What it may read.
    fn class(&self) -> Class {
        match self {
            Self::One(class) | Self::Any(class) => *class,
            Self::Maybe(_) => Class::NONE,
        }
    }

    /// Where a pattern that is at this step stands after reading a byte.
    fn after(&self, at: usize) -> usize {
        if matches!(self, Self::One(_)) { at + 1 } else { at }
    }

    /// Where it may go on without reading one.
    fn skips(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        let (next, past) = match self {
            Self::One(_) => (None, None),
            Self::Any(_) => (Some(at + 1), None),
            Self::Maybe(steps) => (Some(at + 1), Some(at + 1 + steps)),
        };
        next.into_iter().chain(past)
    }
}

/// How many steps that both take together are as much work as a look at a pair of them.
const STRIDE: usize = 32;

/// A template read as a pattern.
pub(super) struct Pattern(Vec<Step>);

impl Pattern {
    /// Whether some text fits both; `None` where that takes more looks than there are, which are counted down.
    pub(super) fn overlaps(&self, other: &Self, looks: &mut usize) -> Option<bool> {
        // As long as each has but one way on, from the beginning and back from the end, they go it together. (What may
        // be left out ends with any number of characters.)
        let both = |(a, b): &(&Step, &Step)| matches!((a, b), (Step::One(_), Step::One(_)));
        let meet = |(a, b): &(&Step, &Step)| !a.class().common(b.class()).is_empty();
        let beginning = self.0.iter().zip(&other.0).take_while(both).take_while(meet).count();
        let (rows, columns) = (&self.0[beginning..], &other.0[beginning..]);
        let end = rows.iter().rev().zip(columns.iter().rev()).take_while(both);
        let (end, meeting) = (end.clone().count(), end.take_while(meet).count());
        *looks = looks.checked_sub((beginning + end) / STRIDE)?;
        if meeting < end {
            return Some(false);
        }
        let (rows, columns) = (&rows[..rows.len() - end], &columns[..columns.len() - end]);
        // Pairs of steps, one of each, to which one text leads.
        let mut reached = Reached::new(rows.len() + 1, columns.len() + 1);
        reached.add(0, 0);
        while let Some((row, column)) = reached.next() {
            *looks = looks.checked_sub(1)?;
            if let Some(step) = rows.get(row) {
                step.skips(row).for_each(|row| reached.add(row, column));
            }
            if let Some(step) = columns.get(column) {
                step.skips(column).for_each(|column| reached.add(row, column));
            }
            if let (Some(a), Some(b)) = (rows.get(row), columns.get(column))
                && !a.class().common(b.class()).is_empty()
            {
                reached.add(a.after(row), b.after(column));
            }
        }
        Some(reached.has(rows.len(), columns.len()))
    }
}

/// Which pairs were reached, a bit each, and which of them were not yet looked at.
struct Reached {
    marks: Vec<u64>,
    columns: usize,
    waiting: Vec<(usize, usize)>,
}

impl Reached {
    fn new(rows: usize, columns: usize) -> Self {
        Self { marks: vec![0; (rows * columns).div_ceil(64)], columns, waiting: Vec::new() }
    }

    fn add(&mut self, row: usize, column: usize) {
        if !self.has(row, column) {
            let at = row * self.columns + column;
            self.marks[at / 64] |= 1 << (at % 64);
            self.waiting.push((row, column));
        }
    }

    fn has(&self, row: usize, column: usize) -> bool {
        let at = row * self.columns + column;
        self.marks[at / 64] >> (at % 64) & 1 == 1
    }

    fn next(&mut self) -> Option<(usize, usize)> {
        self.waiting.pop()
    }
}
