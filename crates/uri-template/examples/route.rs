//! Matches URIs against a set of templates, the most specific first.
//!
//! ```sh
//! cargo run --package uri-template --example route -- file:///notes/a/b.md user://7/posts?page=2
//! ```

use std::cmp::Reverse;
use std::error::Error;
use std::io::Write;

use uri_template::{ConflictChecker, UriTemplate};

const TEMPLATES: [&str; 4] =
    ["user://{id}", "user://{id}/posts{?page,order}", "file:///{+path}", "file:///notes/{+path}.md"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut templates = TEMPLATES.map(UriTemplate::parse).into_iter().collect::<Result<Vec<_>, _>>()?;
    templates.sort_by_key(|template| Reverse(template.specificity()));
    // With equally specific templates that match one URI, the result would depend on the order above.
    let mut checker = ConflictChecker::default();
    for template in &templates {
        checker.insert(template)?;
    }
    let mut out = std::io::stdout();
    for uri in std::env::args().skip(1) {
        let found = templates.iter().find_map(|template| Some((template, template.matches(&uri)?)));
        match found {
            Some((template, values)) => writeln!(out, "{uri}  {template}  {values:?}")?,
            None => writeln!(out, "{uri}  no template matches")?,
        }
    }
    Ok(())
}
