//! Where a value ends: the stop of each separator, and the characters that a value must therefore percent-encode.

use crate::class::Class;
use crate::error::UriTemplateError as Error;
use crate::layout::{Layout, Separator, Slot, Variable};

/// Candidates for a stop, from the characters that are least likely in a value to the most likely.
const STOPS: [Class; 3] = [
    Class::STRUCTURE,
    Class::RESERVED.difference(Class::STRUCTURE),
    Class::UNRESERVED.difference(Class::ALPHANUMERIC),
];

impl Layout {
    /// The next separator, with this text.
    ///
    /// # Errors
    /// If the text has no character that can be a stop.
    pub(super) fn separator(&self, text: String) -> Result<Separator, Error> {
        let at = self.separators.len();
        let (left, right) = (&self.slots[at], &self.slots[at + 1]);
        // Next to a reserved value only a character that no other value contains, even unencoded, marks the boundary.
        let ranks = if left.is_reserved() || right.is_reserved() { &STOPS[..2] } else { &STOPS[..] };
        let barred = self.syntax(left).union(self.syntax(right));
        let stop = ranks.iter().map(|rank| rank.difference(barred)).find_map(|rank| {
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

    /// The characters that a slot is written with, except those of its values.
    fn syntax(&self, slot: &Slot) -> Class {
        let names = slot.parameters.iter().map(|p| Class::of(self.names[p.variable.index].as_bytes()));
        let equals = if slot.parameters.is_empty() { Class::NONE } else { Class::only('=') };
        let suffix = Class::of(slot.suffix.as_bytes());
        names.fold(slot.delimiters.union(equals).union(suffix), Class::union)
    }

    /// Sets the characters that each value may contain unencoded.
    pub(super) fn assign_classes(&mut self) {
        let any = Class::UNRESERVED.union(Class::RESERVED);
        let hash = Class::only('#');
        let stops: Vec<u8> = self.separators.iter().map(Separator::character).collect();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            // The stops on both sides, although one would suffice: a value that another implementation expanded with
            // one of them unencoded then does not match, instead of being split differently.
            let simple =
                Class::SEGMENT.difference(Class::of(&stops[at.saturating_sub(1)..stops.len().min(at + 1)]));
            if let Some(value) = &mut slot.value {
                value.accepts = match (value.reserved, &self.fragment) {
                    (true, Some(_)) => any.difference(slot.leads).difference(hash),
                    (true, None) => any.difference(slot.leads),
                    (false, _) => simple,
                };
            }
            for parameter in &mut slot.parameters {
                parameter.variable.accepts = simple;
            }
        }
        if let Some(fragment) = &mut self.fragment {
            fragment.accepts = any.difference(hash);
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
