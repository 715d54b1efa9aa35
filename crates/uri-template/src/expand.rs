//! Expansion: RFC 6570, section 3.

use crate::error::{ExpandError, ValueError};
use crate::layout::{Layout, Slot, Variable};
use crate::{scan, value};

impl Layout {
    /// Writes the URI of these values.
    pub(super) fn expand<'v>(&self, values: &dyn Fn(&str) -> Option<&'v str>) -> Result<String, ExpandError> {
        let mut expansion = Expansion { layout: self, values, uri: self.head.clone() };
        for (at, slot) in self.slots.iter().enumerate() {
            if let Some(separator) = at.checked_sub(1).and_then(|before| self.separators.get(before)) {
                expansion.uri.push_str(&separator.text);
            }
            expansion.slot(slot)?;
        }
        expansion.uri.push_str(&self.tail);
        if let Some(fragment) = self.fragment
            && let Some(value) = values(&self.names[fragment.index])
        {
            expansion.uri.push('#');
            expansion.write(fragment, value)?;
        }
        expansion.finish()
    }
}

struct Expansion<'e, 'v> {
    layout: &'e Layout,
    values: &'e dyn Fn(&str) -> Option<&'v str>,
    uri: String,
}

impl Expansion<'_, '_> {
    fn slot(&mut self, slot: &Slot) -> Result<(), ExpandError> {
        if let Some(variable) = slot.value {
            let name = &self.layout.names[variable.index];
            match (self.values)(name) {
                None => return Err(ExpandError::Missing(name.clone())),
                Some("") => return Err(ExpandError::Value { name: name.clone(), fault: ValueError::Empty }),
                Some(value) => self.write(variable, value)?,
            }
        }
        self.uri.push_str(&slot.suffix);
        let mut group = None;
        for parameter in &slot.parameters {
            let name = &self.layout.names[parameter.variable.index];
            let Some(value) = (self.values)(name) else { continue };
            self.uri.push(parameter.lead(group != Some(parameter.group)));
            group = Some(parameter.group);
            self.uri.push_str(name);
            if parameter.operator != ';' || !value.is_empty() {
                self.uri.push('=');
            }
            self.write(parameter.variable, value)?;
        }
        Ok(())
    }

    fn write(&mut self, variable: Variable, value: &str) -> Result<(), ExpandError> {
        variable
            .encode(value, &mut self.uri)
            .map_err(|fault| ExpandError::Value { name: self.layout.names[variable.index].clone(), fault })
    }

    fn finish(self) -> Result<String, ExpandError> {
        if scan::has_dot_dot_segment(&self.uri) {
            return Err(ExpandError::DotDot);
        }
        if !value::is_uri(&self.uri) {
            return Err(ExpandError::NotAUri);
        }
        Ok(self.uri)
    }
}
