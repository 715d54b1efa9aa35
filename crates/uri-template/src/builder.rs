//! Arranges the parts of a template into its layout, and refuses ambiguous templates.

use crate::class::Class;
use crate::error::UriTemplateError as Error;
use crate::layout::{Layout, Parameter, Slot, Variable};
use crate::syntax::{Operator, Part};

impl Layout {
    /// Arranges the parts of a template.
    ///
    /// # Errors
    /// If the template is ambiguous.
    pub(super) fn build(parts: Vec<Part<'_>>) -> Result<Self, Error> {
        if !matches!(parts.first(), Some(Part::Literal(head)) if has_scheme(head)) {
            return Err(Error::Scheme);
        }
        let mut draft = Draft::default();
        for part in parts {
            draft.part(part)?;
        }
        draft.finish()
    }
}

fn has_scheme(head: &str) -> bool {
    head.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

#[derive(Default)]
struct Draft {
    names: Vec<String>,
    head: String,
    slots: Vec<Slot>,
    literals: Vec<String>,
    /// The literal text after the last slot.
    pending: String,
    fragment: Option<Variable>,
    reserved: Option<usize>,
}

impl Draft {
    fn part(&mut self, part: Part<'_>) -> Result<(), Error> {
        if let Some(fragment) = &self.fragment {
            return Err(Error::AfterFragment(self.names[fragment.index].clone()));
        }
        match part {
            Part::Literal(text) => self.pending.push_str(text),
            Part::Expression(operator, names) => {
                for (position, name) in names.into_iter().enumerate() {
                    self.variable(operator, position, name)?;
                }
            }
        }
        Ok(())
    }

    fn variable(&mut self, operator: Operator, position: usize, name: &str) -> Result<(), Error> {
        if self.names.iter().any(|known| known == name) {
            return Err(Error::Repeated(name.to_owned()));
        }
        let reserved = matches!(operator, Operator::Reserved | Operator::Fragment);
        let variable = Variable { index: self.names.len(), reserved, accepts: Class::NONE };
        match operator {
            Operator::Simple if position > 0 => self.pending.push(','),
            Operator::Prefixed(prefix) => self.pending.push(prefix),
            _ => {}
        }
        match operator {
            Operator::Fragment => self.fragment = Some(variable),
            Operator::Named(operator) => self.parameter(variable, operator, position)?,
            _ => self.value(variable, name)?,
        }
        self.names.push(name.to_owned());
        Ok(())
    }

    fn value(&mut self, variable: Variable, name: &str) -> Result<(), Error> {
        if let (true, Some(left)) = (self.pending.is_empty(), self.names.last()) {
            return Err(Error::Adjacent { left: left.clone(), right: name.to_owned() });
        }
        if variable.reserved {
            if let Some(first) = self.reserved.and_then(|slot| self.slots[slot].value) {
                let first = self.names[first.index].clone();
                return Err(Error::SecondReserved { first, second: name.to_owned() });
            }
            self.reserved = Some(self.slots.len());
        }
        self.open(Slot { value: Some(variable), ..Slot::default() });
        Ok(())
    }

    fn parameter(&mut self, variable: Variable, operator: char, position: usize) -> Result<(), Error> {
        let slot = match self.slots.last_mut() {
            Some(slot) if slot.takes(&self.pending, operator) => {
                slot.suffix.push_str(&std::mem::take(&mut self.pending));
                slot
            }
            _ => self.open(Slot::default()),
        };
        if let Some(Variable { index, reserved: true, .. }) = slot.value
            && operator != '?'
        {
            return Err(Error::AfterReserved { name: self.names[index].clone(), operator });
        }
        let group = slot.parameters.last().map_or(0, |last| last.group) + usize::from(position == 0);
        slot.add(Parameter { variable, group, operator });
        Ok(())
    }

    fn open(&mut self, slot: Slot) -> &mut Slot {
        let literal = std::mem::take(&mut self.pending);
        if self.slots.is_empty() {
            self.head = literal;
        } else {
            self.literals.push(literal);
        }
        self.slots.push_mut(slot)
    }

    fn finish(mut self) -> Result<Layout, Error> {
        if self.slots.is_empty() {
            self.head = std::mem::take(&mut self.pending);
        }
        for slot in &mut self.slots {
            slot.by_name = (0..slot.parameters.len()).collect();
            slot.by_name.sort_by_key(|&at| &self.names[slot.parameters[at].variable.index]);
        }
        let mut layout = Layout {
            pivot: self.reserved.unwrap_or(self.slots.len().saturating_sub(1)),
            names: self.names,
            head: self.head,
            slots: self.slots,
            separators: Vec::with_capacity(self.literals.len()),
            tail: self.pending,
            fragment: self.fragment,
        };
        for literal in self.literals {
            let separator = layout.separator(literal)?;
            layout.separators.push(separator);
        }
        layout.assign_classes();
        Ok(layout)
    }
}
