//! Specificity, and whether some URI matches two templates.

use crate::class::Class;
use crate::layout::{Layout, Slot};

/// How specific a template is: the greater takes precedence.
///
/// A template with more literal bytes is more specific: those outside of expressions, and those that `{/a}`, `{.a}` and
/// `{a,b}` write before each value. Of two with equally many, the one without `{+…}` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Specificity {
    literal_bytes: usize,
    has_no_reserved_value: bool,
}

/// A step of a template as a pattern of characters. A pattern may accept more than its template, never less.
enum Step {
    /// One character of the class.
    One(Class),
    /// Any number of characters of the class.
    Any(Class),
    /// This many of the following steps, or none of them.
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
            let value = fragment.accepts.union(Class::ENCODED);
            steps.extend([Step::Maybe(2), Step::One(Class::only('#')), Step::Any(value)]);
        }
        steps
    }

    fn slot_steps(&self, slot: &Slot, steps: &mut Vec<Step>) {
        if let Some(value) = &slot.value {
            let value = value.accepts.union(Class::ENCODED);
            steps.extend([Step::One(value), Step::Any(value)]);
        }
        literal(&slot.suffix, steps);
        if !slot.parameters.is_empty() {
            let text =
                slot.parameters.iter().fold(slot.delimiters.union(Class::only('=')), |text, parameter| {
                    let name = Class::of(self.names[parameter.variable.index].as_bytes());
                    text.union(name).union(parameter.variable.accepts).union(Class::ENCODED)
                });
            steps.extend([Step::Maybe(2), Step::One(slot.leads), Step::Any(text)]);
        }
    }
}

fn literal(text: &str, steps: &mut Vec<Step>) {
    steps.extend(text.bytes().map(|byte| Step::One(Class::of(&[byte]))));
}

impl Step {
    /// The characters that it accepts.
    fn class(&self) -> Class {
        match self {
            Self::One(class) | Self::Any(class) => *class,
            Self::Maybe(_) => Class::NONE,
        }
    }

    /// The position in the pattern after this step has read a byte.
    fn after(&self, at: usize) -> usize {
        if matches!(self, Self::One(_)) { at + 1 } else { at }
    }

    /// The positions reached without reading a byte.
    fn skips(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        let (next, past) = match self {
            Self::One(_) => (None, None),
            Self::Any(_) => (Some(at + 1), None),
            Self::Maybe(steps) => (Some(at + 1), Some(at + 1 + steps)),
        };
        next.into_iter().chain(past)
    }
}

/// How many steps of a common prefix or suffix cost as much as one visit to a pair of positions.
const STRIDE: usize = 32;

/// A template as a pattern of characters.
pub(super) struct Pattern(Vec<Step>);

impl Pattern {
    /// Whether both accept some text. Each visited pair of positions is subtracted from `visits`; `None` if they are
    /// used up.
    pub(super) fn overlaps(&self, other: &Self, visits: &mut usize) -> Option<bool> {
        // Steps of exactly one character are compared pairwise, from the beginning and back from the end. (An optional
        // part ends with `Any`.)
        let both = |(a, b): &(&Step, &Step)| matches!((a, b), (Step::One(_), Step::One(_)));
        let meet = |(a, b): &(&Step, &Step)| !a.class().intersection(b.class()).is_empty();
        let beginning = self.0.iter().zip(&other.0).take_while(both).take_while(meet).count();
        let (rows, columns) = (&self.0[beginning..], &other.0[beginning..]);
        let end = rows.iter().rev().zip(columns.iter().rev()).take_while(both);
        let (end, meeting) = (end.clone().count(), end.take_while(meet).count());
        *visits = visits.checked_sub((beginning + end) / STRIDE)?;
        if meeting < end {
            return Some(false);
        }
        let (rows, columns) = (&rows[..rows.len() - end], &columns[..columns.len() - end]);
        // Pairs of positions, one in each pattern, that some text reaches.
        let mut reached = Reached::new(rows.len() + 1, columns.len() + 1);
        reached.add(0, 0);
        while let Some((row, column)) = reached.next() {
            *visits = visits.checked_sub(1)?;
            if let Some(step) = rows.get(row) {
                step.skips(row).for_each(|row| reached.add(row, column));
            }
            if let Some(step) = columns.get(column) {
                step.skips(column).for_each(|column| reached.add(row, column));
            }
            if let (Some(a), Some(b)) = (rows.get(row), columns.get(column))
                && !a.class().intersection(b.class()).is_empty()
            {
                reached.add(a.after(row), b.after(column));
            }
        }
        Some(reached.has(rows.len(), columns.len()))
    }
}

/// The pairs of positions reached, a bit each, and those of them not yet visited.
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
