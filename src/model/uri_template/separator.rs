//! Where a value ends: the literals between slots, and what a value may therefore not hold raw.

use super::class::Class;
use super::error::UriTemplateError as Error;
use super::layout::{Layout, Slot, Variable};

/// The literal text between two slots.
pub(super) struct Separator {
    pub(super) text: String,
    /// Where its *stop* is: a character that no slot holds which is read from this separator on, so that the
    /// first (backwards: the last) one in a URI is this one.
    pub(super) stop: usize,
}

impl Separator {
    /// The stop.
    pub(super) fn character(&self) -> u8 {
        self.text.as_bytes()[self.stop]
    }
}

/// From the character that is the least likely in a value to the most likely.
const STOPS: [Class; 3] = [
    Class::STRUCTURE,
    Class::RESERVED.without(Class::STRUCTURE),
    Class::UNRESERVED.without(Class::ALPHANUMERIC),
];

impl Layout {
    /// The separator that `text` is after those there are; refused where it has no stop.
    pub(super) fn separator(&self, text: String) -> Result<Separator, Error> {
        let at = self.separators.len();
        let (left, right) = (&self.slots[at], &self.slots[at + 1]);
        // Beside a reserved value only a character that no other value holds, even unencoded, tells where it is.
        let ranks = if left.is_reserved() || right.is_reserved() { &STOPS[..2] } else { &STOPS[..] };
        let barred = self.syntax(left).and(self.syntax(right));
        let stop = ranks.iter().map(|rank| rank.without(barred)).find_map(|rank| {
            let mut bytes = text.bytes();
            if at < self.pivot {
                bytes.position(|byte| rank.contains(byte))
            } else {
                bytes.rposition(|byte| rank.contains(byte))
            }
        });
        match stop {
            Some(stop) => Ok(Separator { text, stop }),
            None => Err(Error::Separator {
                left: self.names[left.variables().map(|v| v.index).max().unwrap_or_default()].clone(),
                right: self.names[right.variables().map(|v| v.index).min().unwrap_or_default()].clone(),
                literal: text,
            }),
        }
    }

    /// What a slot is written with, its values aside.
    fn syntax(&self, slot: &Slot) -> Class {
        let names = slot.parameters.iter().map(|p| Class::of(self.names[p.variable.index].as_bytes()));
        let equals = if slot.parameters.is_empty() { Class::NONE } else { Class::only('=') };
        let suffix = Class::of(slot.suffix.as_bytes());
        names.fold(slot.delimiters.and(equals).and(suffix), Class::and)
    }

    /// Settles what every value may hold raw.
    pub(super) fn assign_classes(&mut self) {
        let any = Class::UNRESERVED.and(Class::RESERVED);
        let hash = Class::only('#');
        let stops: Vec<u8> = self.separators.iter().map(Separator::character).collect();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            // The stops on both sides, though one would do: a value that was expanded elsewhere and holds one
            // raw then matches nothing, where else a part of it would pass for its neighbour's.
            let simple =
                Class::SEGMENT.without(Class::of(&stops[at.saturating_sub(1)..stops.len().min(at + 1)]));
            if let Some(value) = &mut slot.value {
                value.accepts = match (value.reserved, &self.fragment) {
                    (true, Some(_)) => any.without(slot.leads).without(hash),
                    (true, None) => any.without(slot.leads),
                    (false, _) => simple,
                };
            }
            for parameter in &mut slot.parameters {
                parameter.variable.accepts = simple;
            }
        }
        if let Some(fragment) = &mut self.fragment {
            fragment.accepts = any.without(hash);
        }
    }
}

impl Slot {
    fn is_reserved(&self) -> bool {
        self.value.is_some_and(|value| value.reserved)
    }

    fn variables(&self) -> impl Iterator<Item = Variable> {
        self.value.into_iter().chain(self.parameters.iter().map(|parameter| parameter.variable))
    }
}
