//! Tests of whole skills.

mod archives;
mod frontmatter;
mod names;
mod properties;

use crate::{Limits, RawFile, SkillError, SkillPath, check};

const LIMITS: Limits = Limits { files: 8, bytes: 4_096 };

const SKILL: &str = "---\nname: refunds\ndescription: d\n---\n";

fn files(all: &[(&str, &str)]) -> Vec<RawFile> {
    all.iter().map(|(path, text)| RawFile { path: (*path).to_owned(), bytes: (*text).into() }).collect()
}

fn refusal(all: &[(&str, &str)]) -> String {
    let path = SkillPath::parse("acme/refunds").unwrap();
    let checked: Result<_, SkillError> = check(&path, files(all), LIMITS);
    checked.err().map(|error| error.to_string()).unwrap_or_default()
}
