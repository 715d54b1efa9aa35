//! Completion: the values for an argument that match the typed text.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use caseless::Caseless;
use content_source::{Content, FetchError, Format, Kind, Location};
use futures_util::FutureExt;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use unicode_normalization::UnicodeNormalization;

use super::Catalog;
use super::read::SourceUse;
use super::snapshot::view::View;
use crate::identity::grant::Caller;
use crate::model::call::{Completion, CompletionRequest, Reference};
use crate::model::completion::{CompletionValues, TYPED};
use crate::model::fault::Fault;
use crate::model::ids::TenantId;
use crate::model::place::SourcePlace;
use crate::model::prompt::Prompt;
use crate::model::resource::parse_mime;
use crate::model::scope::Revision;
use crate::model::template::ResourceTemplate;
use crate::sources::{ContentError, ContentRequest};

/// The maximum number of values in an answer (server/utilities/completion).
const MAX_VALUES: usize = 100;
/// For how long the values of a source are answered without asking it again, unless the definition says.
const TTL: Duration = Duration::from_secs(5);
/// The maximum number of values of a source that are considered, and the maximum length of each in bytes; others are not
/// offered.
const MAX_CONSIDERED: usize = 10_000;
const MAX_BYTES: usize = 1_024;

/// The error of content that has no values.
const BAD_CONTENT: Fault = Fault::SourceFailed(FetchError::BadContent);

/// What completes an argument, and the revision that last changed its definition.
///
/// # Errors
/// [`Fault::InvalidParams`] if there is no such prompt or template, or it has no such argument or variable.
fn offer<'v>(
    view: &'v View,
    request: &CompletionRequest,
) -> Result<Option<(&'v CompletionValues, Revision)>, Fault> {
    let argument = request.argument.as_str();
    match &request.reference {
        Reference::Prompt(name) => {
            let prompt = view.get::<Prompt>(name).ok_or_else(|| Fault::unknown_prompt(name))?;
            let declared = prompt.arguments.iter().find(|declared| declared.name == argument);
            let values = &declared.ok_or_else(|| Fault::unknown("argument", argument))?.completions;
            Ok(Some((values, prompt.revision)))
        }
        Reference::Template(text) => {
            let template = view.get::<ResourceTemplate>(text);
            let template = template.ok_or_else(|| Fault::unknown("resource template", text))?;
            if !template.uri_template.variables().any(|variable| variable == argument) {
                return Err(Fault::unknown("argument", argument));
            }
            let values = template.completions.get(argument);
            Ok(values.map(|values| (values, template.revision)))
        }
    }
}

/// The values of the variables of a place: the typed text, and of the context what the definition declares.
fn known(view: &View, request: &CompletionRequest) -> Vec<(String, String)> {
    let declared: Vec<_> = match &request.reference {
        Reference::Prompt(name) => {
            let prompt = view.get::<Prompt>(name).into_iter();
            prompt.flat_map(|prompt| &prompt.arguments).map(|declared| declared.name.as_str()).collect()
        }
        Reference::Template(text) => {
            let template = view.get::<ResourceTemplate>(text).into_iter();
            template.flat_map(|template| template.uri_template.variables()).collect()
        }
    };
    let declared = declared.into_iter().filter(|name| *name != TYPED);
    let given = declared.filter_map(|name| Some((name, request.context.get(name)?)));
    let typed = (TYPED, &request.value);
    given.chain([typed]).map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

impl Catalog {
    /// The values that begin with the typed text, then those that contain it elsewhere, each once and in the order of the
    /// definition or of the source. A source that takes the typed text in its path or query has matched it already.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] if there is no such prompt or template, or it has no such argument or variable; those of a
    /// source, except that content which is not found has no values. A failure is an error and not an empty list, which a
    /// client would keep.
    pub async fn complete(
        &self,
        caller: &Caller,
        view: &View,
        request: &CompletionRequest,
        source_use: &dyn SourceUse,
    ) -> Result<Completion, Fault> {
        match offer(view, request)? {
            None => Ok(best(&[], &request.value)),
            Some((CompletionValues::Listed(values), _)) => Ok(best(values, &request.value)),
            Some((CompletionValues::Sourced { source }, revision)) => {
                source_use.takes_from(source.connection());
                let located = source.locate(&known(view, request)).map(by_line);
                let typed = &request.value;
                let Some(location) = located else { return Ok(best(&[], typed)) };
                let place = (&**source, revision, location);
                // Of an erased type, as other reads of sources.
                self.complete_outside(caller, place, typed, source_use).boxed().await
            }
        }
    }

    async fn complete_outside(
        &self,
        caller: &Caller,
        (source, revision, location): (&SourcePlace, Revision, Location),
        typed: &str,
        source_use: &dyn SourceUse,
    ) -> Result<Completion, Fault> {
        let connection =
            source.uid().ok_or_else(|| Fault::Internal("completion without a connection".to_owned()))?;
        let wanted = ContentRequest {
            payer: caller.payer(),
            tenant: caller.tenant,
            agent: caller.agent,
            revision,
            connection,
            location: Arc::new(location),
            ttl: Some(source.ttl().unwrap_or(TTL)),
            stale: source.stale(),
            found: None,
        };
        let contents = match self.outside(wanted, source_use).await {
            Ok(found) => found.contents,
            Err(ContentError::NotFound) => return Ok(best(&[], typed)),
            Err(ContentError::Fault(fault)) => return Err(fault),
        };
        let is_matched = source.place().variables().iter().any(|variable| variable.name == TYPED);
        let typed = if is_matched { String::new() } else { typed.to_owned() };
        // On a thread of its own: folding many values takes milliseconds.
        let completed = self.renderer.run(caller.payer(), move || {
            let values = match &*contents {
                [content] => offered(content),
                _ => Err(BAD_CONTENT),
            };
            Ok(values.map(|values| best(&values, &typed)))
        });
        completed.await?
    }

    /// Checks the places that completions come from.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`].
    pub(super) async fn check_completions(
        &self,
        tenant: TenantId,
        completions: Vec<(String, &CompletionValues)>,
    ) -> Result<(), Fault> {
        for (member, values) in completions {
            let Some(source) = values.source() else { continue };
            let checked = self.check_source_as(tenant, source, by_line).await;
            let kind = checked.map_err(|fault| fault.within(&member))?;
            if source.is_directory() && kind != Kind::Http {
                let wrong = Fault::invalid_params("source.path: a directory has no completions, only a file");
                return Err(wrong.within(member));
            }
        }
        Ok(())
    }
}

/// The location, with the result of a statement as text: the first column, one value per line.
fn by_line(location: Location) -> Location {
    match location {
        Location::Statement { statement, parameters, .. } => {
            Location::Statement { statement, parameters, format: Format::Text }
        }
        path @ Location::Path { .. } => path,
    }
}

/// The values of a content: a JSON list of texts, or lines.
fn offered(content: &Content) -> Result<Vec<String>, Fault> {
    let text = std::str::from_utf8(&content.bytes).map_err(|_| BAD_CONTENT)?;
    let mime = content.mime_type.as_deref().and_then(parse_mime);
    let is_json = mime.is_some_and(|mime| mime.subtype() == "json" || mime.suffix() == Some(mime::JSON));
    match serde_json::from_str::<Offered>(text) {
        Ok(Offered(values)) => Ok(values),
        Err(_) if is_json => Err(BAD_CONTENT),
        Err(_) => {
            let lines = text.lines().filter(|line| fits(line)).take(MAX_CONSIDERED);
            Ok(lines.map(str::to_owned).collect())
        }
    }
}

fn fits(value: &str) -> bool {
    (1..=MAX_BYTES).contains(&value.len())
}

/// The values of a JSON list that are considered: of others, of which there may be millions, nothing is kept.
struct Offered(Vec<String>);

impl<'de> Deserialize<'de> for Offered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Considered).map(Self)
    }
}

struct Considered;

impl<'de> Visitor<'de> for Considered {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element::<String>()? {
            if values.len() < MAX_CONSIDERED && fits(&value) {
                values.push(value);
            }
        }
        Ok(values)
    }
}

/// The offered values that match the typed text: those that begin with it, then those that contain it elsewhere.
fn best(offered: &[String], typed: &str) -> Completion {
    let typed = folded(typed);
    let (mut with_prefix, mut containing, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for value in offered.iter().filter(|value| seen.insert(value.as_str())) {
        match folded(value).find(&typed) {
            Some(0) => with_prefix.push(value),
            Some(_) => containing.push(value),
            None => {}
        }
    }
    let total = with_prefix.len() + containing.len();
    let values = with_prefix.into_iter().chain(containing).take(MAX_VALUES).cloned().collect();
    Completion { values, total }
}

/// Folds a text for comparison. Two texts with the same folded form are a canonical caseless match (Unicode Standard,
/// definition 145): they differ at most in case and in how accents are encoded.
fn folded(text: &str) -> String {
    text.chars().nfd().default_case_fold().nfd().collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use content_source::Content;

    use super::{BAD_CONTENT, best, offered};

    fn values(offered: &[&str], typed: &str) -> Vec<String> {
        best(&offered.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>(), typed).values
    }

    #[test]
    fn values_with_the_prefix_come_before_values_that_contain_it() {
        assert_eq!(values(&["sparta", "paris", "PARK", "rome"], "par"), ["paris", "PARK", "sparta"]);
        assert_eq!(values(&["b", "a"], ""), ["b", "a"]);
        assert!(values(&["a"], "ab").is_empty());
    }

    #[test]
    fn case_is_ignored_in_every_script() {
        for (offered, typed) in [
            ("São Paulo", "SÃO"),
            ("ΌΔΟΣ", "όδος"),
            ("οδός", "ΟΔΌΣ"),
            ("Straße", "STRASSE"),
            ("Москва", "мОС"),
            ("Ⴀbc", "ⴀB"),
            ("Sa\u{303}o", "são"),
            ("北京", "京"),
        ] {
            assert_eq!(values(&[offered], typed), [offered], "{typed}");
        }
        assert!(values(&["Sao"], "são").is_empty());
    }

    #[test]
    fn value_that_is_offered_twice_counts_once() {
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

    #[test]
    fn values_of_a_source_are_a_json_list_or_lines() {
        let values = |mime: Option<&str>, text: &str| {
            let bytes = Bytes::copy_from_slice(text.as_bytes());
            offered(&Content { name: None, mime_type: mime.map(str::to_owned), modified: None, bytes })
        };
        let listed = |values: &[&str]| Ok(values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>());
        assert_eq!(values(Some("application/json"), r#"["a","b\nc",""]"#), listed(&["a", "b\nc"]));
        assert_eq!(values(None, r#"["a"]"#), listed(&["a"]));
        assert_eq!(values(Some("text/plain"), "a\r\n\n[b\n"), listed(&["a", "[b"]));
        for broken in [r#"{"a":1}"#, "[1]", "a"] {
            for mime in ["application/json; charset=utf-8", "application/x+json"] {
                assert_eq!(values(Some(mime), broken), Err(BAD_CONTENT));
            }
        }
        let long = format!("{}\na\n{}", "x".repeat(1_025), "y\n".repeat(10_000));
        let found = values(None, &long).unwrap();
        assert_eq!((found.len(), found[0].as_str()), (10_000, "a"));
        // Of a list, no more than is considered takes memory.
        let long = serde_json::to_string(&vec!["y"; 1_000_000]).unwrap();
        let found = values(Some("application/json"), &long).unwrap();
        assert_eq!((found.len(), found.capacity() < 20_000), (10_000, true));
        let long = values(None, &"y\n".repeat(1_000_000)).unwrap();
        assert!(long.capacity() < 20_000, "{}", long.capacity());
    }
}
