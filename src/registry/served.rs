//! Which URIs are answered otherwise since resource templates changed.

use super::snapshot::Definitions;
use crate::model::scope::{Change, ChangeKind, Revision};
use crate::model::uri::ResourceUri;
use crate::model::uri_template::UriTemplate;

/// How often a URI is held against a template before all are taken for changed.
const MOST_MATCHES: usize = 100_000;

/// The URIs, each with the revision that did it; `None` where finding out is too much work.
pub(super) fn answered_anew(
    definitions: &Definitions,
    changes: &[Change],
    uris: &[ResourceUri],
) -> Option<Vec<(Revision, ResourceUri)>> {
    let uris: Vec<_> = uris.iter().filter(|uri| !definitions.resources.contains_key(*uri)).collect();
    if uris.len().saturating_mul(changes.len()) > MOST_MATCHES {
        return None;
    }
    let mut found = Vec::new();
    for change in changes {
        let Ok(template) = UriTemplate::parse(&change.subject) else { continue };
        let served = uris.iter().filter(|uri| serves(definitions, change.kind, &template, uri));
        found.extend(served.map(|uri| (change.revision, (*uri).clone())));
    }
    Some(found)
}

/// Whether a template answers to a URI, or did until it was removed.
fn serves(definitions: &Definitions, kind: ChangeKind, template: &UriTemplate, uri: &ResourceUri) -> bool {
    if template.matches(uri.as_str()).is_none() {
        return false;
    }
    let present = definitions.templates.find(uri).map(|found| found.template.uri_template.clone());
    match present {
        Some(present) if present == *template => true,
        Some(present) => {
            kind == ChangeKind::TemplateRemoved && template.specificity() > present.specificity()
        }
        None => kind == ChangeKind::TemplateRemoved,
    }
}
