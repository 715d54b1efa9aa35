//! A template as it is matched and expanded: alternating literals and slots.

use crate::class::Class;

/// The structure of a template: `head slot separator slot … tail fragment`.
pub(super) struct Layout {
    /// The variables, in order.
    pub(super) names: Vec<String>,
    pub(super) head: String,
    pub(super) slots: Vec<Slot>,
    /// One between every two slots.
    pub(super) separators: Vec<Separator>,
    pub(super) tail: String,
    pub(super) fragment: Option<Variable>,
    /// The slot that matches the text that the others leave: the one with `{+…}`, otherwise the last. The slots before
    /// it are read forwards, those after it backwards.
    pub(super) pivot: usize,
}

/// The expressions between two separators: one value, any number of parameters, or both in this order.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) value: Option<Variable>,
    /// The literal text after the value, if it is part of the slot: that of `{name}.md{?a}`.
    pub(super) suffix: String,
    pub(super) parameters: Vec<Parameter>,
    /// The positions of the parameters, ordered by name.
    pub(super) by_name: Vec<usize>,
    /// The characters that can introduce the first parameter.
    pub(super) leads: Class,
    /// The characters that can introduce a parameter.
    pub(super) delimiters: Class,
}

/// A variable.
#[derive(Clone, Copy)]
pub(super) struct Variable {
    /// Its index in [`Layout::names`].
    pub(super) index: usize,
    /// Whether it is one of `{+…}` or `{#…}`.
    pub(super) reserved: bool,
    /// The characters that its value may contain unencoded.
    pub(super) accepts: Class,
}

/// A variable of `{;…}`, `{?…}` or `{&…}`.
pub(super) struct Parameter {
    pub(super) variable: Variable,
    /// Which expression of the slot it belongs to.
    pub(super) group: usize,
    pub(super) operator: char,
}

/// The literal text between two slots.
pub(super) struct Separator {
    pub(super) text: String,
    /// The index of its *stop*: a character that no slot read after this separator may contain, so that its first
    /// occurrence in a URI (its last one, reading backwards) is this one.
    pub(super) stop: usize,
}

impl Separator {
    /// The stop.
    pub(super) fn character(&self) -> u8 {
        self.text.as_bytes()[self.stop]
    }
}

impl Parameter {
    /// The character before the name.
    pub(super) fn lead(&self, first_of_group: bool) -> char {
        if first_of_group || self.operator != '?' { self.operator } else { '&' }
    }
}

impl Slot {
    /// Whether the slot includes parameters after this literal text: if the character that introduces them marks the
    /// end of the value more reliably than the text.
    pub(super) fn takes(&self, literal: &str, operator: char) -> bool {
        let plain = Class::UNRESERVED.union(Class::only('%'));
        literal.is_empty()
            || self.parameters.is_empty()
                && self.value.is_some_and(|value| !value.reserved || operator == '?')
                && literal.bytes().all(|byte| plain.contains(byte))
    }

    pub(super) fn add(&mut self, parameter: Parameter) {
        let first = Class::only(parameter.lead(true));
        self.leads = self.leads.union(first);
        self.delimiters = self.delimiters.union(first).union(Class::only(parameter.lead(false)));
        self.parameters.push(parameter);
    }
}
