//! JSON of a manifest for people: its outer levels are indented, deeper ones are printed as received.

/// How many levels of a manifest are indented: its members, its lists, and the members of their items. Deeper levels are
/// printed as received, since an owner's own JSON is compared by its bytes.
const INDENTED_LEVELS: usize = 3;

/// Indents the outer levels of a JSON document.
pub(super) fn indent(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + json.len() / 8);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let break_line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", depth));
    };
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        if in_string {
            text.push(character);
            in_string = character != '"' || escaped;
            escaped = character == '\\' && !escaped;
            continue;
        }
        in_string = character == '"';
        let closes = matches!(character, '}' | ']');
        if closes {
            depth = depth.saturating_sub(1);
            if depth < INDENTED_LEVELS && !text.ends_with(['{', '[']) {
                break_line(&mut text, depth);
            }
        }
        text.push(character);
        if matches!(character, '{' | '[') {
            depth += 1;
            if depth <= INDENTED_LEVELS && !matches!(characters.peek(), Some('}' | ']')) {
                break_line(&mut text, depth);
            }
        } else if depth <= INDENTED_LEVELS && character == ',' {
            break_line(&mut text, depth);
        } else if depth <= INDENTED_LEVELS && character == ':' {
            text.push(' ');
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::indent;

    #[test]
    fn outer_levels_are_indented_and_the_rest_is_unchanged() {
        let json = r#"{"apiVersion":"v","resources":[{"uri":"a:{,}\"[","_meta":{ "a" :[1 ,2]},"contents":[]},{}],"prompts":[]}"#;
        let expected = r#"{
  "apiVersion": "v",
  "resources": [
    {
      "uri": "a:{,}\"[",
      "_meta": { "a" :[1 ,2]},
      "contents": []
    },
    {}
  ],
  "prompts": []
}
"#;
        assert_eq!(indent(json), expected);
    }
}
