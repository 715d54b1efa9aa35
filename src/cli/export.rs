//! `waggle export`: an agent's registry as a manifest.

use clap::Args;
use reqwest::Method;

use super::admin::{Admin, Request};
use super::{
    Sources,
    output::{Failure, print},
};
use crate::model::ids::Slug;

/// How deep a manifest is laid out: its members, its lists, and the members of what stands in them. What is deeper
/// stays as the gateway gives it, since an owner's own JSON is told apart by its bytes.
const LAID_OUT: usize = 3;

#[derive(Args)]
pub(super) struct Export {
    /// The agent.
    #[arg(value_parser = Slug::parse_agent)]
    agent: Slug,
}

impl Export {
    pub(super) fn run(self, sources: &Sources<'_>) -> Result<(), Failure> {
        let path = format!("/agents/{}/manifest", self.agent);
        let manifest = Admin::of(sources)?.ask(&Request { method: Method::GET, path, body: None })?;
        let manifest = String::from_utf8(manifest)
            .map_err(|_| Failure::Gateway("the answer is not understood: it is not UTF-8".to_owned()))?;
        print(&laid_out(&manifest))
    }
}

/// JSON with its outermost levels laid out in lines.
fn laid_out(json: &str) -> String {
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
            if depth < LAID_OUT && !text.ends_with(['{', '[']) {
                break_line(&mut text, depth);
            }
        }
        text.push(character);
        if matches!(character, '{' | '[') {
            depth += 1;
            if depth <= LAID_OUT && !matches!(characters.peek(), Some('}' | ']')) {
                break_line(&mut text, depth);
            }
        } else if depth <= LAID_OUT && character == ',' {
            break_line(&mut text, depth);
        } else if depth <= LAID_OUT && character == ':' {
            text.push(' ');
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::laid_out;

    #[test]
    fn the_outermost_levels_are_laid_out_and_the_rest_is_kept() {
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
        assert_eq!(laid_out(json), expected);
    }
}
