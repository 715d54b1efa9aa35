//! Template matching: finds the variables of a URI in one pass, without backtracking.

use crate::class::Class;
use crate::layout::{Layout, Parameter, Separator, Slot, Variable};
use crate::scan;
use crate::value::Allowed;

impl Layout {
    /// The values by variable, `None` for each that the URI omits. `None` if the URI does not match.
    pub(super) fn read(&self, uri: &str, allowed: Allowed) -> Option<Vec<Option<String>>> {
        if allowed == Allowed::Expandable && scan::has_dot_dot_segment(uri) {
            return None;
        }
        let (_, body) = scan::split_around(uri, 0, &self.head, 0)?;
        let mut values = Values { read: vec![None; self.names.len()], allowed };
        let body = self.read_fragment(body, &mut values)?;
        let (mut body, _) = scan::split_around(body, body.len(), &self.tail, self.tail.len())?;
        let Some(pivot) = self.slots.get(self.pivot) else {
            return body.is_empty().then_some(values.read);
        };
        for (slot, separator) in self.slots.iter().zip(&self.separators).take(self.pivot) {
            let (text, rest) = separator.split_first(body)?;
            slot.read(self, text, &mut values)?;
            body = rest;
        }
        for (slot, separator) in self.slots[1..].iter().zip(&self.separators).skip(self.pivot).rev() {
            let (rest, text) = separator.split_last(body)?;
            slot.read(self, text, &mut values)?;
            body = rest;
        }
        pivot.read(self, body, &mut values)?;
        Some(values.read)
    }

    /// Reads the fragment, if the template has one; returns the text before it.
    fn read_fragment<'u>(&self, body: &'u str, values: &mut Values) -> Option<&'u str> {
        let Some(fragment) = &self.fragment else { return Some(body) };
        let Some(hash) = scan::first(body, Class::only('#')) else { return Some(body) };
        values.put(*fragment, &body[hash + 1..])?;
        Some(&body[..hash])
    }
}

impl Separator {
    fn split_first<'t>(&self, text: &'t str) -> Option<(&'t str, &'t str)> {
        let position = scan::first(text, Class::of(&[self.character()]))?;
        scan::split_around(text, position, &self.text, self.stop)
    }

    fn split_last<'t>(&self, text: &'t str) -> Option<(&'t str, &'t str)> {
        let position = scan::last(text, Class::of(&[self.character()]))?;
        scan::split_around(text, position, &self.text, self.stop)
    }
}

impl Slot {
    fn read(&self, layout: &Layout, text: &str, values: &mut Values) -> Option<()> {
        let (raw, parameters) = text.split_at(scan::first(text, self.leads).unwrap_or(text.len()));
        let (raw, _) = scan::split_around(raw, raw.len(), &self.suffix, self.suffix.len())?;
        match self.value {
            // An empty value cannot be distinguished from a missing one.
            Some(_) if raw.is_empty() => return None,
            Some(variable) => values.put(variable, raw)?,
            None if raw.is_empty() => {}
            None => return None,
        }
        self.read_parameters(layout, parameters, values)
    }

    /// Reads parameters: expressions in order, the parameters of one expression in any order, none repeated or unknown.
    fn read_parameters(&self, layout: &Layout, mut rest: &str, values: &mut Values) -> Option<()> {
        let mut group = None;
        while let Some(lead) = rest.chars().next() {
            let body = &rest[lead.len_utf8()..];
            let (text, after) = body.split_at(scan::first(body, self.delimiters).unwrap_or(body.len()));
            let (name, raw) = match scan::first(text, Class::only('=')) {
                Some(equals) => (&text[..equals], &text[equals + 1..]),
                None => (text, ""),
            };
            let parameter = self.parameter(layout, name)?;
            if lead != parameter.lead(group != Some(parameter.group)) || group > Some(parameter.group) {
                return None;
            }
            group = Some(parameter.group);
            values.put(parameter.variable, raw)?;
            rest = after;
        }
        Some(())
    }

    fn parameter(&self, layout: &Layout, name: &str) -> Option<&Parameter> {
        let name_of = |at: usize| layout.names[self.parameters[at].variable.index].as_str();
        let place = self.by_name.binary_search_by(|&at| scan::compare(name_of(at), name)).ok()?;
        Some(&self.parameters[self.by_name[place]])
    }
}

/// The values read so far, by variable.
struct Values {
    read: Vec<Option<String>>,
    allowed: Allowed,
}

impl Values {
    /// Stores the value of a variable; `None` if the text is not a value, or the variable has one already.
    fn put(&mut self, variable: Variable, raw: &str) -> Option<()> {
        let place = &mut self.read[variable.index];
        if place.is_some() {
            return None;
        }
        *place = Some(variable.decode(raw, self.allowed)?);
        Some(())
    }
}
