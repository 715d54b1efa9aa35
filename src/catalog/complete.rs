//! Completion: the values for an argument that match the typed text.

use std::collections::HashSet;

use caseless::Caseless;
use unicode_normalization::UnicodeNormalization;

use super::snapshot::view::View;
use crate::model::call::{Completion, Reference};
use crate::model::fault::Fault;
use crate::model::prompt::Prompt;
use crate::model::template::ResourceTemplate;

/// The maximum number of values in an answer (server/utilities/completion).
const MOST_VALUES: usize = 100;

/// The values that begin with the typed text, then those that contain it elsewhere, each once and in the order of the
/// definition.
///
/// # Errors
/// [`Fault::InvalidParams`] if there is no such prompt or template, or it has no such argument or variable.
pub fn complete(
    view: &View,
    reference: &Reference,
    argument: &str,
    written: &str,
) -> Result<Completion, Fault> {
    let offered = match reference {
        Reference::Prompt(name) => {
            let prompt = view.get::<Prompt>(name).ok_or_else(|| Fault::unknown_prompt(name))?;
            let declared = prompt.arguments.iter().find(|declared| declared.name == argument);
            &declared.ok_or_else(|| Fault::unknown("argument", argument))?.completions[..]
        }
        Reference::Template(text) => {
            let template = view.get::<ResourceTemplate>(text);
            let template = template.ok_or_else(|| Fault::unknown("resource template", text))?;
            if !template.uri_template.variables().any(|variable| variable == argument) {
                return Err(Fault::unknown("argument", argument));
            }
            template.completions.get(argument).map_or(&[][..], Vec::as_slice)
        }
    };
    Ok(best(offered, written))
}

fn best(offered: &[String], written: &str) -> Completion {
    let written = folded(written);
    let (mut begin, mut hold, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for value in offered.iter().filter(|value| seen.insert(value.as_str())) {
        match folded(value).find(&written) {
            Some(0) => begin.push(value),
            Some(_) => hold.push(value),
            None => {}
        }
    }
    let total = begin.len() + hold.len();
    Completion { values: begin.into_iter().chain(hold).take(MOST_VALUES).cloned().collect(), total }
}

/// A text without its case and however its accents are written: a canonical caseless match is equality of these
/// (Unicode Standard, definition 145).
fn folded(text: &str) -> String {
    text.chars().nfd().default_case_fold().nfd().collect()
}

#[cfg(test)]
mod tests {
    use super::best;

    fn values(offered: &[&str], written: &str) -> Vec<String> {
        best(&offered.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>(), written).values
    }

    #[test]
    fn values_that_begin_so_come_before_those_that_hold_it() {
        assert_eq!(values(&["sparta", "paris", "PARK", "rome"], "par"), ["paris", "PARK", "sparta"]);
        assert_eq!(values(&["b", "a"], ""), ["b", "a"]);
        assert!(values(&["a"], "ab").is_empty());
    }

    #[test]
    fn case_is_no_difference_in_any_script() {
        for (offered, written) in [
            ("São Paulo", "SÃO"),
            ("ΌΔΟΣ", "όδος"),
            ("οδός", "ΟΔΌΣ"),
            ("Straße", "STRASSE"),
            ("Москва", "мОС"),
            ("Ⴀbc", "ⴀB"),
            ("Sa\u{303}o", "são"),
            ("北京", "京"),
        ] {
            assert_eq!(values(&[offered], written), [offered], "{written}");
        }
        assert!(values(&["Sao"], "são").is_empty());
    }

    #[test]
    fn a_value_that_is_offered_twice_counts_once() {
        let offered = ["paris", "rome", "paris"].map(str::to_owned);
        let completion = best(&offered, "");
        assert_eq!((completion.values.as_slice(), completion.total), (&offered[..2], 2));
    }

    #[test]
    fn at_most_a_hundred_values_are_sent_and_all_are_counted() {
        let offered: Vec<_> = (0..250).map(|n| format!("v{n}")).collect();
        let completion = best(&offered, "V");
        assert_eq!((completion.values.as_slice(), completion.total), (&offered[..100], 250));
    }
}
